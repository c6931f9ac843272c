package cluster

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestOwnersOnly: an agent, whose certificate is of the same authority, cannot do what
// the cluster's owner can; nor can the owner of another cluster.
func TestOwnersOnly(t *testing.T) {
	t.Parallel()
	authority, other := newTestAuthority(t), newTestAuthority(t)
	server, err := authority.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(append(OwnersOnly(), grpc.Creds(credentials.NewTLS(server)))...)
	clusterpb.RegisterControlServer(s, clusterpb.UnimplementedControlServer{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	as := func(a *Authority, name string) *grpc.ClientConn {
		conn, err := dialAs(a, name, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for _, tt := range []struct {
		name string
		conn *grpc.ClientConn
		want codes.Code // Unimplemented: it got through
	}{
		{"the owner", as(authority, clientName), codes.Unimplemented},
		{"an agent", as(authority, "0"), codes.PermissionDenied},
		{"another cluster's owner", as(other, clientName), codes.Unavailable},
	} {
		defer tt.conn.Close()
		client := clusterpb.NewControlClient(tt.conn)
		_, err := client.Status(t.Context(), &clusterpb.StatusRequest{})
		if status.Code(err) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
		stream, err := client.Shutdown(t.Context(), &clusterpb.ShutdownRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func newTestAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestStartIsToldWhenKept: a client hears how its start went when the next driver would know
// of the run too.
func TestStartIsToldWhenKept(t *testing.T) {
	t.Parallel()
	asked, kept := make(chan struct{}), make(chan struct{})
	c := coordinate(t, true, func(cfg *Config) {
		cfg.Kept = func(ctx context.Context) error {
			close(asked)
			select {
			case <-kept:
			case <-ctx.Done():
				t.Error("it is not awaited for long enough")
			}
			return nil
		}
	})
	told := make(chan *clusterpb.StartUpdate, 100)
	stream := &sent[clusterpb.StartUpdate]{ctx: within(t)}
	stream.every = func(u *clusterpb.StartUpdate) {
		told <- u
		c.post(func() { c.handle(evPrepared{exec: "0", run: 1, attempt: 1, err: "no port is free"}) })
	}
	ended := make(chan error, 1)
	go func() {
		ended <- c.Control().(*control).Start(&clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}, stream)
	}()
	<-asked
	for len(told) > 0 {
		if u := <-told; u.GetFailure() != nil || u.GetEntered() {
			t.Errorf("before it is kept, the client is told %v", u)
		}
	}
	close(kept)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(told) == 0 {
		t.Error("the client is not told how it ended")
	}
}

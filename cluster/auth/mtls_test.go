package auth

import (
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestOwnersOnly: neither an agent with a certificate of the same authority nor the owner of
// another cluster can call the owner's methods.
func TestOwnersOnly(t *testing.T) {
	t.Parallel()
	authority, other := newTestAuthority(t), newTestAuthority(t)
	server, err := authority.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(append(OwnersOnly(), grpc.Creds(credentials.NewTLS(server)))...)
	clusterpb.RegisterControlServer(s, clusterpb.UnimplementedControlServer{})
	clusterpb.RegisterFeedControlServer(s, clusterpb.UnimplementedFeedControlServer{})
	clusterpb.RegisterFeedsServer(s, clusterpb.UnimplementedFeedsServer{})
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
		want codes.Code // Unimplemented: the call was permitted
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
		if _, err := client.Samples(t.Context(), &clusterpb.SamplesRequest{}); status.Code(err) != tt.want {
			t.Errorf("%s reads samples: %v", tt.name, err)
		}
		watched, err := client.Watch(t.Context(), &clusterpb.WatchRequest{})
		if err == nil {
			_, err = watched.Recv()
		}
		if status.Code(err) != tt.want {
			t.Errorf("%s watches: %v", tt.name, err)
		}
		stream, err := client.Shutdown(t.Context(), &clusterpb.ShutdownRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
		feed, err := clusterpb.NewFeedControlClient(tt.conn).Feed(t.Context())
		if err == nil {
			_, err = feed.Recv()
		}
		if status.Code(err) != tt.want {
			t.Errorf("%s feeds: %v", tt.name, err)
		}
	}
	agent := as(authority, "0")
	defer agent.Close()
	holder, err := clusterpb.NewFeedsClient(agent).Attend(t.Context())
	if err == nil {
		_, err = holder.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("an agent attends: %v", err)
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

package cluster

import (
	"crypto/tls"
	"crypto/x509"
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
	owner := func(a *Authority) *grpc.ClientConn {
		conn, err := DialHosted(a, ln.Addr().String())
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
		{"the owner", owner(authority), codes.Unimplemented},
		{"an agent", dialAs(t, authority, "0", ln.Addr().String()), codes.PermissionDenied},
		{"another cluster's owner", owner(other), codes.Unavailable},
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

// dialAs connects with a certificate of that name.
func dialAs(t *testing.T, a *Authority, name, address string) *grpc.ClientConn {
	t.Helper()
	certPEM, keyPEM, err := a.Issue(name)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: coordinatorName, MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

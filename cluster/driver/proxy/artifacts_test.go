package proxy

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// oldDriver is a driver of some protocol.
type oldDriver struct {
	clusterpb.UnimplementedControlServer
	protocol int32
}

func (d oldDriver) Status(context.Context, *clusterpb.StatusRequest) (*clusterpb.ClusterStatus, error) {
	return &clusterpb.ClusterStatus{Name: "c", Version: "0.0.9", Protocol: d.protocol}, nil
}

// TestCheckProtocol: a start is not handed to a driver of an earlier version, which would pass
// over a part of it: a client that asks while the driver is away hears this process's version.
func TestCheckProtocol(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		protocol int32
		want     string
	}{
		{clusterpb.Protocol, ""},
		{
			clusterpb.Protocol - 1,
			"cluster c was reserved by tfcluster 0.0.9, whose driver does not understand all that tfcluster 0.1.0 asks for",
		},
	} {
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		clusterpb.RegisterControlServer(server, oldDriver{protocol: tt.protocol})
		go func() { _ = server.Serve(listener) }() // ends with Stop, which is no error
		t.Cleanup(server.Stop)
		p := &Proxy{cfg: Config{Version: "0.1.0"}}
		if p.conn, err = grpc.NewClient("unix:"+
			socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.conn.Close() })
		err = p.checkProtocol(t.Context())
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("protocol %d: %v, want %q", tt.protocol, err, tt.want)
		}
	}
}

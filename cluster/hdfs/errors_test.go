package hdfs

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestUnreachable: the error names the node that does not answer.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	f := &FS{config: Config{Bridge: 4 * time.Second}}
	at := location{uri: "hdfs://nn:8020/x", path: "/x", nameNodes: []string{"nn:8020", "other:9000"}}
	refused := func(port int) error {
		return &os.PathError{Op: "read", Path: "/x", Err: &net.OpError{
			Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 13), Port: port}, Err: syscall.ECONNREFUSED,
		}}
	}
	for port, want := range map[int]string{
		9866: "the last at DataNode 10.0.0.13:9866: dial tcp 10.0.0.13:9866: connection refused; check that it runs",
		9000: "no call succeeded at nn:8020,other:9000 within 4s: dial tcp 10.0.0.13:9000: connection refused; " +
			"check that the NameNode runs",
	} {
		if got := f.explain("read", at, refused(port)).Error(); !strings.Contains(got, want) {
			t.Errorf("port %d: %q, want %q", port, got, want)
		}
	}
}

package spark

import (
	"bufio"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/unixsock"
)

// TestStrangeSession: a session that a killed driver was making is told to end, and the
// cluster's own is taken.
func TestStrangeSession(t *testing.T) {
	t.Parallel()
	ln, err := unixsock.Listen(filepath.Join(t.TempDir(), "host.sock"))
	if err != nil {
		t.Fatal(err)
	}
	a := &allocation{
		req: cluster.Request{Reserve: &clusterpb.ReserveRequest{}}, events: make(chan cluster.Event, 4),
		stop: make(chan struct{}), hostListener: hostListener{ln: ln, hostEvents: make(chan hostEvent)},
		current: current{changed: make(chan struct{}), session: &session{key: "ours"}},
	}
	a.work.Go(a.serve)
	t.Cleanup(func() {
		close(a.stop)
		ln.Close()
		a.work.Wait()
	})
	say := func(key string) (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write([]byte(`{"event":"hello","key":"` + key + `"}` + "\n")); err != nil {
			t.Fatal(err)
		}
		return conn, bufio.NewReader(conn)
	}
	_, lines := say("theirs")
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"op":"stop"`) {
		t.Errorf("the stranger is told %q, %v", line, err)
	}
	say("ours")
	if err := a.awaitHost(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestSessionEndsFirst: a session of the notebook's that ends before its first word is not waited for.
func TestSessionEndsFirst(t *testing.T) {
	t.Parallel()
	a := &allocation{
		req:    cluster.Request{Reserve: &clusterpb.ReserveRequest{Engine: map[string]string{engineSession: "spark"}}},
		events: make(chan cluster.Event, 4), stop: make(chan struct{}), current: current{changed: make(chan struct{})},
	}
	a.handleEvent(nil, hostEvent{Event: "ended", Why: "the SparkSession was stopped"})
	if err := a.open(t.Context()); err == nil ||
		!strings.HasSuffix(err.Error(), "did not connect: the SparkSession was stopped") {
		t.Errorf("the reservation ends with %v", err)
	}
}

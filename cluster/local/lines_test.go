package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// broker starts the broker and returns its socket.
func broker(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tfl") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	cmd := exec.CommandContext(t.Context(), clustertest.Program(t), "broker", "--socket", socket)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = clustertest.Deadline
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // ended by the signal
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	clustertest.WaitFor(t, "the broker's socket", func() bool { _, err := os.Stat(socket); return err == nil })
	return socket
}

// followed is a message of lines/live.
type followed struct {
	Lines      []clusterpb.LineJSON
	Gap, Error string
	Over       bool
}

// TestLinesByHTTP: a browser reads all lines of a real cluster through the broker, as they come and as a file, without
// TensorBoard. Its socket ends with the cluster.
func TestLinesByHTTP(t *testing.T) {
	t.Parallel()
	const each = 50_000
	c := harness(t).Start(t, "worker=2")
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	at, err := c.LinesAddress(ctx, &clusterpb.LinesAddressRequest{})
	if err != nil {
		t.Fatal(err)
	}
	socket := broker(t)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	base := strings.TrimPrefix(at.GetPath(), "tfcluster")
	follow := func(run int32) *websocket.Conn {
		t.Helper()
		d := websocket.Dialer{HandshakeTimeout: clustertest.Deadline, NetDialContext: dial}
		conn, _, err := d.DialContext(ctx, "ws://jupyter"+base+"lines/live?"+url.Values{"run": {fmt.Sprint(run)}}.Encode(),
			http.Header{"Origin": {"http://jupyter"}})
		if err == nil {
			err = conn.SetReadDeadline(time.Now().Add(clustertest.Deadline))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	r := c.Script(fmt.Sprintf("for i in range(%d): print('line', i)", each))
	conn := follow(1)
	next := map[string]uint64{}
	for over := false; !over; {
		m := readFollowed(t, conn)
		if m.Error != "" || m.Gap != "" {
			t.Fatalf("it is told %q, %q", m.Error, m.Gap)
		}
		for _, l := range m.Lines {
			if l.Number != next[l.Task] || l.Text != fmt.Sprint("line ", l.Number) {
				t.Fatalf("after %v comes %v", next, l)
			}
			next[l.Task]++
		}
		over = m.Over
	}
	if next["worker:0"] != each || next["worker:1"] != each {
		t.Errorf("%v lines came", next)
	}
	if st := r.Wait(); st.GetState() != "finished" {
		t.Errorf("the run is %v", st)
	}

	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jupyter"+base+
		"lines?run=1&task=worker:1&grep=9$", nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := transport.RoundTrip(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Body.Close()
	out, err := io.ReadAll(file.Body)
	if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); file.StatusCode != http.StatusOK || err != nil ||
		len(lines) != each/10 || !slices.Contains(lines, "[worker:1] line 49999") {
		t.Errorf("the file has %d lines: %v", len(lines), err)
	}

	c.Script("import time\nprint('begun', flush=True)\ntime.sleep(600)").Line("[worker:1] begun")
	conn = follow(2)
	for lines := 0; lines < 2; {
		lines += len(readFollowed(t, conn).Lines)
	}
	c.End()
	for m := readFollowed(t, conn); m.Error == ""; m = readFollowed(t, conn) {
		if m.Over {
			break // the run was stopped before the cluster was released
		}
	}
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway,
		websocket.CloseNormalClosure) {
		t.Errorf("the socket ends with %v", err)
	}
}

func readFollowed(t *testing.T, conn *websocket.Conn) (m followed) {
	t.Helper()
	_, b, err := conn.ReadMessage()
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

package interpreter

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// connected returns a connection to a zygote, and the zygote's end of it.
func connected(t *testing.T) (conn, peer *net.UnixConn) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "z.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if conn, err = DialPeer(listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if peer, err = listener.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return conn, peer
}

// TestSpawnThroughADeadZygote: one that does not read any more, and is seen to be
// gone a moment later, is one that died, so that the task gets another.
func TestSpawnThroughADeadZygote(t *testing.T) {
	t.Parallel()
	conn, peer := connected(t)
	if err := peer.CloseRead(); err != nil {
		t.Fatal(err)
	}
	z := NewZygote(conn)
	defer z.Close()
	dying := time.AfterFunc(50*time.Millisecond, func() { peer.Close() })
	defer dying.Stop()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	_, err = z.Spawn(t.Context(), SpawnRequest{ID: "x"}, [3]*os.File{null, null, null})
	if !errors.Is(err, ErrZygoteGone) {
		t.Errorf("spawn says %v", err)
	}
	if len(z.spawning)+len(z.exits) > 0 {
		t.Errorf("it still waits for %v, %v", z.spawning, z.exits)
	}
}

// TestCurrentOfADeadZygote: until its keeper has dropped a zygote that died and has another one, there is none.
func TestCurrentOfADeadZygote(t *testing.T) {
	t.Parallel()
	conn, peer := connected(t)
	dead := NewZygote(conn)
	defer dead.Close()
	peer.Close()
	<-dead.Gone
	i := New(Starter{t.TempDir()}, nil, nil)
	set := func(z *zygote, p *clusterpb.Python) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.set(z, p)
	}
	set(dead, &clusterpb.Python{})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if z, _, err := i.Current(over); z != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("while its keeper has not dropped it: %v, %v", z, err)
	}
	conn, _ = connected(t)
	next := NewZygote(conn)
	defer next.Close()
	got := make(chan *zygote, 1)
	go func() {
		z, _, _ := i.Current(t.Context())
		got <- z
	}()
	set(nil, nil)
	set(next, &clusterpb.Python{})
	select {
	case z := <-got:
		if z != next {
			t.Error("it is not the next one")
		}
	case <-time.After(10 * time.Second):
		t.Error("Current does not see the next one")
	}
}

// TestPartOfARequest: the connection to a zygote that took a part of a request is closed, so that
// nothing follows the part.
func TestPartOfARequest(t *testing.T) {
	t.Parallel()
	conn, peer := connected(t)
	z := NewZygote(conn)
	defer z.Close()
	sent := make(chan error, 1)
	go func() { sent <- z.send(SpawnRequest{Cwd: strings.Repeat("x", 16<<20)}) }() // more than the socket holds
	if _, err := peer.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetWriteDeadline(time.Now()); err != nil { // the time for the request is over
		t.Fatal(err)
	}
	if err := <-sent; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("send says %v", err)
	}
	select {
	case <-z.Gone:
	case <-time.After(time.Minute):
		t.Error("the connection is still open")
	}
}

package interpreter

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSpawnThroughADeadZygote: one that does not read any more, and is seen to be
// gone a moment later, is one that died, so that the task gets another.
func TestSpawnThroughADeadZygote(t *testing.T) {
	t.Parallel()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "z.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := DialPeer(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
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

package zmtp_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// heartbeat sends a PING and reads its PONG.
func heartbeat(t *testing.T, nc net.Conn, nth int) {
	t.Helper()
	if _, err := nc.Write([]byte("\x04\x0a\x04PING\x00\x0actx")); err != nil {
		t.Fatalf("PING %d: %v", nth, err)
	}
	got := make([]byte, 10)
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != "\x04\x08\x04PONGctx" {
		t.Fatalf("PING %d is answered with %q: %v", nth, got, err)
	}
}

// Ensure an idle client that has sent no message yet may send heartbeats forever, although
// their sum exceeds its limit.
func TestHeartbeatsOfUntrustedPeer(t *testing.T) {
	t.Parallel()
	r, _ := guardedEcho(t, zmtp.Options{Untrusted: zmtp.NewBudget(1)})
	nc := raw(t, r.Addr())
	shake(t, nc, "DEALER")
	for i := range 2000 {
		heartbeat(t, nc, i)
	}
	if _, err := nc.Write([]byte("\x00\x03key")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != "\x00\x03key" {
		t.Errorf("the first message is answered with %q: %v", got, err)
	}
}

// Ensure a PING between two frames releases only its own share, not that of the message around
// it.
func TestHeartbeatWithinUntrustedMessage(t *testing.T) {
	t.Parallel()
	r, refused := guardedEcho(t, zmtp.Options{MaxUntrusted: 2000})
	nc := raw(t, r.Addr())
	shake(t, nc, "DEALER")
	frame := append([]byte{1, 200}, make([]byte, 200)...) // more follow; each counts 264 bytes
	for i := range 7 {
		if _, err := nc.Write(frame); err != nil {
			t.Fatal(err)
		}
		heartbeat(t, nc, i)
	}
	if _, err := nc.Write(frame); err != nil {
		t.Fatal(err)
	}
	// Reset or end: the connection is closed.
	if b, err := io.ReadAll(nc); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("not closed, answered %q: %v", b, err)
	}
	if err := <-refused; !errors.Is(err, zmtp.ErrUntrusted) {
		t.Errorf("refused: %v", err)
	}
}

// Ensure SUBSCRIBE, a command of SUB sockets, does not bypass Trusts at a ROUTER.
func TestSubscribeAtRouter(t *testing.T) {
	t.Parallel()
	r, _ := guardedEcho(t, zmtp.Options{})
	nc := raw(t, r.Addr())
	shake(t, nc, "DEALER")
	if _, err := nc.Write([]byte("\x04\x0d\x09SUBSCRIBEkey\x04\x0a\x06CANCELkey")); err != nil {
		t.Fatal(err)
	}
	heartbeat(t, nc, 0)
	if _, err := nc.Write([]byte("\x00\x03key")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != "\x00\x03key" {
		t.Errorf("answered %q: %v", got, err)
	}
}

package zmtp_test

import (
	"io"
	"testing"

	zmq "github.com/go-zeromq/zmq4"

	"github.com/tfcluster/tfcluster/internal/handshake"
	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// Ensure peers that do not authenticate take no client's place: those that send nothing, those that are silent
// after the handshake, and those whose messages are not signed.
func TestSilentPeersAmongClients(t *testing.T) {
	t.Parallel()
	const places = 4
	r, _ := guardedEcho(t, zmtp.Options{MaxPeers: places})
	for range places {
		raw(t, r.Addr())
		shake(t, raw(t, r.Addr()), "DEALER")
		nc := raw(t, r.Addr())
		shake(t, nc, "DEALER")
		if _, err := nc.Write([]byte("\x00\x05wrong")); err != nil {
			t.Fatal(err)
		}
	}
	roundTrip(t, r.Addr(), "key")
}

// Ensure the oldest of too many connections that have not authenticated is closed for a client, and no connection
// that has.
func TestTooManySilentPeers(t *testing.T) {
	t.Parallel()
	const room = 4
	r, _ := guardedEcho(t, zmtp.Options{Unauthenticated: handshake.NewLimiter(room, 0)})
	known := zmq.NewDealer(t.Context(), zmq.WithTimeout(patience), zmq.WithDialerMaxRetries(0))
	defer known.Close()
	if err := known.Dial("tcp://" + r.Addr().String()); err != nil {
		t.Fatal(err)
	}
	ask := func() {
		t.Helper()
		if err := known.Send(zmq.NewMsgString("key")); err != nil {
			t.Fatal(err)
		}
		if _, err := known.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	first := raw(t, r.Addr())
	shake(t, first, "DEALER")
	for range 3 * room {
		raw(t, r.Addr())
	}
	roundTrip(t, r.Addr(), "key")
	if _, err := io.ReadAll(first); err != nil { // else this lasts until the connection's deadline
		t.Errorf("the oldest silent peer: %v", err)
	}
	ask()
}

// Ensure clients beyond MaxPeers are refused, and that a place is free again when one has gone.
func TestMaxPeers(t *testing.T) {
	t.Parallel()
	const places = 2
	r, refused := guardedEcho(t, zmtp.Options{MaxPeers: places})
	for range 3 * places { // each leaves its place
		roundTrip(t, r.Addr(), "key")
	}
	for range places + 1 {
		nc := raw(t, r.Addr())
		shake(t, nc, "DEALER")
		if _, err := nc.Write([]byte("\x00\x03key")); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-refused; err.Error() != "too many clients are connected: close notebooks or consoles of this kernel" {
		t.Errorf("refused: %v", err)
	}
}

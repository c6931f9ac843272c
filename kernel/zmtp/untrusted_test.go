package zmtp_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	zmq "github.com/go-zeromq/zmq4"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// guardedEcho is an echo that trusts peers whose message is "key".
func guardedEcho(t *testing.T, opt zmtp.Options) (*zmtp.Router, chan error) {
	t.Helper()
	refused := make(chan error, 1024)
	opt.Trusts = func(m zmtp.Message) bool { return string(m[0]) == "key" }
	opt.Refused = func(_ string, err error) { refused <- err }
	return echo(t, "tcp://127.0.0.1:0", opt), refused
}

// begin sends the header of a frame of size bytes, and the first body bytes.
func begin(t *testing.T, addr net.Addr, size, body int) net.Conn {
	t.Helper()
	nc := raw(t, addr)
	shake(t, nc, "DEALER")
	if _, err := nc.Write(append(binary.BigEndian.AppendUint64([]byte{2}, uint64(size)),
		make([]byte, body)...)); err != nil {
		t.Fatal(err)
	}
	return nc
}

// Ensure a peer may send little before it is trusted, and much afterwards.
func TestUntrustedMessage(t *testing.T) {
	t.Parallel()
	r, refused := guardedEcho(t, zmtp.Options{MaxUntrusted: 1 << 20})
	nc := begin(t, r.Addr(), 2<<20, 1000)
	if b, _ := io.ReadAll(nc); len(b) > 0 { // reset or end: the connection is closed
		t.Errorf("answered %q", b)
	}
	if err := <-refused; !errors.Is(err, zmtp.ErrUntrusted) {
		t.Errorf("refused: %v", err)
	}
	d := zmq.NewDealer(t.Context(), zmq.WithTimeout(patience))
	defer d.Close()
	if err := d.Dial("tcp://" + r.Addr().String()); err != nil {
		t.Fatal(err)
	}
	for _, message := range []string{"stranger", "key", strings.Repeat("x", 5<<20)} {
		if err := d.Send(zmq.NewMsgString(message)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"key", strings.Repeat("x", 5<<20)} {
		if m, err := d.Recv(); err != nil || string(m.Frames[0]) != want {
			t.Fatalf("got %d bytes %v, want %d", len(m.Bytes()), err, len(want))
		}
	}
}

// Ensure untrusted peers together use no more than the budget, that a client's small first
// message is still accepted, and that the budget is released when they disconnect.
func TestUntrustedSum(t *testing.T) {
	t.Parallel()
	r, refused := guardedEcho(t, zmtp.Options{Untrusted: zmtp.NewBudget(3 << 20)})
	strangers := []net.Conn{begin(t, r.Addr(), 4<<20, 1<<20), begin(t, r.Addr(), 4<<20, 1<<20)}
	for range 8 {
		strangers = append(strangers, begin(t, r.Addr(), 1<<20, 1000))
	}
	select {
	case err := <-refused:
		if !errors.Is(err, zmtp.ErrUntrusted) {
			t.Errorf("refused: %v", err)
		}
	case <-time.After(patience):
		t.Error("ten untrusted peers use more than the budget")
	}
	roundTrip(t, r.Addr(), "key", "with untrusted peers connected")
	for _, nc := range strangers {
		_ = nc.Close() // a test's client
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		nc := begin(t, r.Addr(), 2, 0)
		_ = nc.Close() // only to see the others' connections end
		d := zmq.NewDealer(t.Context(), zmq.WithTimeout(time.Second), zmq.WithDialerMaxRetries(0))
		err := d.Dial("tcp://" + r.Addr().String())
		if err == nil {
			err = d.SendMulti(zmq.NewMsgFromString([]string{"key", strings.Repeat("x", 2<<20)}))
		}
		if err == nil {
			_, err = d.Recv()
		}
		_ = d.Close()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the budget is not released: %v", err)
		}
	}
}

// Ensure a peer that sends messages to an echo and does not read is disconnected when its queue
// is full.
func TestUnreadEcho(t *testing.T) {
	t.Parallel()
	r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{QueueHard: 128 << 10})
	nc := raw(t, r.Addr())
	shake(t, nc, "DEALER")
	frame := append([]byte{0, 250}, make([]byte, 250)...)
	for sent := 0; ; sent += len(frame) {
		if _, err := nc.Write(frame); err != nil {
			if errors.Is(err, net.ErrClosed) || sent == 0 {
				t.Fatal(err)
			}
			break
		}
		if sent > 256<<20 {
			t.Fatal("256 MB were echoed and not read")
		}
	}
	roundTrip(t, r.Addr(), "others")
}

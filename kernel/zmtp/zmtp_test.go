package zmtp_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	zmq "github.com/go-zeromq/zmq4"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

const patience = 2 * time.Minute

// echo is a ROUTER that sends back each message.
func echo(t *testing.T, endpoint string, opt zmtp.Options) *zmtp.Router {
	t.Helper()
	r, err := zmtp.ListenRouter(endpoint, opt)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			m, err := r.Recv()
			if err != nil {
				return
			}
			r.Send(m)
		}
	})
	t.Cleanup(func() {
		if err := r.Close(time.Second); err != nil {
			t.Error(err)
		}
		work.Wait()
	})
	return r
}

// raw connects and returns the plain connection.
func raw(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	nc, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}

// shake performs the handshake of a socket type.
func shake(t *testing.T, nc net.Conn, kind string) {
	t.Helper()
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xFF, 0x7F, 3
	copy(g[12:], "NULL")
	ready := "\x05READY\x0bSocket-Type\x00\x00\x00" + string(rune(len(kind))) + kind
	if _, err := nc.Write(append(g, append([]byte{4, byte(len(ready))}, ready...)...)); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 66)
	if _, err := io.ReadFull(nc, head); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, make([]byte, head[65])); err != nil {
		t.Fatal(err)
	}
}

// roundTrip sends a message to an echo with another implementation of ZeroMQ.
func roundTrip(t *testing.T, addr net.Addr, frames ...string) {
	t.Helper()
	d := zmq.NewDealer(t.Context(), zmq.WithTimeout(patience))
	defer d.Close()
	endpoint := "tcp://" + addr.String()
	if addr.Network() == "unix" {
		endpoint = "ipc://" + addr.String()
	}
	if err := d.Dial(endpoint); err != nil {
		t.Fatal(err)
	}
	if err := d.SendMulti(zmq.NewMsgFromString(frames)); err != nil {
		t.Fatal(err)
	}
	m, err := d.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range m.Frames {
		if string(f) != frames[i] {
			t.Fatalf("frame %d: %d bytes came back, want %d", i, len(f), len(frames[i]))
		}
	}
}

// Ensure frames of every size are transferred, over both transports.
func TestRouterEcho(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"tcp://127.0.0.1:0", "ipc://" + filepath.Join(t.TempDir(), "s")} {
		r := echo(t, endpoint, zmtp.Options{})
		roundTrip(t, r.Addr(), "", "a", strings.Repeat("b", 255), strings.Repeat("c", 256), strings.Repeat("d", 5<<20), "")
	}
}

// Ensure a peer that connects and sends nothing delays no other peer, and is disconnected.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	refused := make(chan error, 8)
	r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{
		HandshakeTimeout: 300 * time.Millisecond, Refused: func(_ string, err error) { refused <- err },
	})
	silent := raw(t, r.Addr())
	roundTrip(t, r.Addr(), "with a silent peer connected")
	if _, err := io.ReadAll(silent); err != nil {
		t.Errorf("the silent peer is not closed: %v", err)
	}
	if err := <-refused; err == nil {
		t.Error("it was rejected without a reason")
	}
}

// Ensure a peer that violates the protocol is disconnected, and only that one.
func TestBrokenPeers(t *testing.T) {
	t.Parallel()
	long := binary.BigEndian.AppendUint64([]byte{2}, 1<<62)
	for _, tt := range []struct {
		name string
		send []byte
	}{
		{"a frame of 2^62 bytes", long},
		{"a frame of 2^63 bytes", binary.BigEndian.AppendUint64([]byte{2}, 1<<63)},
		{"unknown flags", []byte{0xF0, 1, 1}},
		{"a truncated command", []byte{4, 2, 9, 'P'}},
		{"PING without its time to live", []byte("\x04\x05\x04PING")},
		{"more frames than allowed", bytes.Repeat([]byte{1, 0}, 20)},
		{"a message longer than allowed", bytes.Repeat(append([]byte{1, 200}, make([]byte, 200)...), 6)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{MaxFrames: 16, MaxMessage: 1000})
			nc := raw(t, r.Addr())
			shake(t, nc, "DEALER")
			if _, err := nc.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(nc); len(b) > 0 { // reset or end: the connection is closed
				t.Errorf("answered %q", b)
			}
			roundTrip(t, r.Addr(), "others")
		})
	}
}

// Ensure memory is not allocated by a claimed length.
func TestForgedLengthAllocatesLittle(t *testing.T) {
	r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{})
	var peers []net.Conn
	for range 64 {
		nc := raw(t, r.Addr())
		shake(t, nc, "DEALER")
		if _, err := nc.Write(binary.BigEndian.AppendUint64([]byte{2}, 1<<30)); err != nil {
			t.Fatal(err)
		}
		peers = append(peers, nc)
	}
	roundTrip(t, r.Addr(), "with 64 GiB announced by others")
	for _, nc := range peers {
		_ = nc.Close() // a test's client
	}
}

// Ensure the wrong socket type and the wrong mechanism are rejected.
func TestRefusedHandshake(t *testing.T) {
	t.Parallel()
	r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{})
	nc := raw(t, r.Addr())
	shake(t, nc, "SUB")
	if b, _ := io.ReadAll(nc); !bytes.Contains(b, []byte("ERROR")) {
		t.Errorf("a SUB at a ROUTER received %q", b)
	}
	nc = raw(t, r.Addr())
	if _, err := nc.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(nc); len(b) > 64 {
		t.Errorf("a browser received %q", b)
	}
}

// Ensure PING is answered with its context (RFC 37).
func TestPing(t *testing.T) {
	t.Parallel()
	r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{})
	nc := raw(t, r.Addr())
	shake(t, nc, "DEALER")
	if _, err := nc.Write([]byte("\x04\x0a\x04PING\x00\x0actx")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 10)
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != "\x04\x08\x04PONGctx" {
		t.Errorf("answered %q %v", got, err)
	}
}

// Ensure a peer that does not read its replies delays no other peer, and is disconnected when
// its queue is full.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	refused := make(chan error, 8)
	r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{QueueHard: 1 << 20, Refused: func(_ string, err error) {
		select {
		case refused <- err:
		default:
		}
	}})
	nc := raw(t, r.Addr())
	shake(t, nc, "DEALER")
	frame := append(binary.BigEndian.AppendUint64([]byte{2}, 1<<19), make([]byte, 1<<19)...)
	for {
		if _, err := nc.Write(frame); err != nil {
			break // disconnected, as expected
		}
	}
	if err := <-refused; err == nil {
		t.Error("disconnected without a reason")
	}
	roundTrip(t, r.Addr(), "others")
}

// Ensure that of two peers with one identity the newer gets the messages, and the older one
// again after the newer has disconnected.
func TestSameIdentity(t *testing.T) {
	t.Parallel()
	r, err := zmtp.ListenRouter("tcp://127.0.0.1:0", zmtp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(0)
	dial := func() zmq.Socket {
		d := zmq.NewDealer(t.Context(), zmq.WithID(zmq.SocketIdentity("same")))
		if err := d.Dial("tcp://" + r.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if err := d.Send(zmq.NewMsgString("hello")); err != nil {
			t.Fatal(err)
		}
		if m, err := r.Recv(); err != nil || string(m[0]) != "same" {
			t.Fatalf("%q %v", m, err)
		}
		return d
	}
	old := dial()
	defer old.Close()
	newer := dial()
	r.Send(zmtp.Message{[]byte("same"), []byte("for the newer")})
	if m, err := newer.Recv(); err != nil || string(m.Frames[0]) != "for the newer" {
		t.Errorf("newer got %v %v", m, err)
	}
	_ = newer.Close() // a test's client
	got := make(chan string, 1)
	go func() {
		if m, err := old.Recv(); err == nil {
			got <- string(m.Frames[0])
		}
	}()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		r.Send(zmtp.Message{[]byte("same"), []byte("for the older")})
		select {
		case s := <-got:
			if s != "for the older" {
				t.Errorf("older got %s", s)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("the older peer receives nothing")
}

// Ensure interoperability with libzmq in its current protocol version: REQ at a ROUTER, SUB at
// an XPUB, heartbeats, and a message of 64 MiB.
func TestInteropPyzmq(t *testing.T) {
	t.Parallel()
	python := findPython(t)
	r := echo(t, "tcp://127.0.0.1:0", zmtp.Options{})
	x, err := zmtp.ListenXPub("tcp://127.0.0.1:0", zmtp.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close(0)
	var work sync.WaitGroup
	defer work.Wait()
	stop := make(chan struct{})
	defer close(stop)
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				x.Send(zmtp.Message{[]byte("topic.x"), []byte("news")}, false)
			}
		}
	})
	out, err := exec.Command(python, "testdata/peer.py", r.Addr().String(), x.Addr().String()).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func findPython(t *testing.T) string {
	t.Helper()
	candidates := []string{os.Getenv("TFCLUSTER_TEST_PYTHON"), "../../.venv/bin/python"}
	for _, p := range candidates {
		if p != "" && exec.Command(p, "-c", "import zmq").Run() == nil {
			return p
		}
	}
	t.Skip("no Python with pyzmq: set TFCLUSTER_TEST_PYTHON")
	return ""
}

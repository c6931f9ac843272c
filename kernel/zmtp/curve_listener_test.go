package zmtp

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/internal/handshake"
)

const listenerPatience = 60 * time.Second

// curvePeer is a client on a real connection.
type curvePeer struct {
	net.Conn
	*curveClient
	fr *frameReader
}

// greetCurve connects and exchanges greetings.
func greetCurve(t *testing.T, addr net.Addr) *curvePeer {
	t.Helper()
	nc, err := net.Dial(addr.Network(), addr.String())
	if err == nil {
		err = nc.SetDeadline(time.Now().Add(listenerPatience))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	g := greeting(mechanismCurve)
	g[mechanismEnd] = 0 // a client
	if _, err := nc.Write(g); err != nil {
		t.Fatal(err)
	}
	theirs := make([]byte, greetingSize)
	if _, err := io.ReadFull(nc, theirs); err != nil || string(theirs[mechanismStart:mechanismStart+6]) != "CURVE\x00" ||
		theirs[mechanismEnd] != asServer {
		t.Fatalf("greeting %q %v", theirs, err)
	}
	fr := &frameReader{
		r: bufio.NewReader(nc), maxFrame: 1 << 30, maxMessage: 1 << 30, maxFrames: 100, allowed: allowance{trusted: true},
	}
	return &curvePeer{nc, newCurveClient(serverKeys(0), rand.Reader), fr}
}

// dialCurve connects and performs the handshake of a socket type, with the identity "me".
func dialCurve(t *testing.T, addr net.Addr, kind string) *curvePeer {
	t.Helper()
	p := greetCurve(t, addr)
	err := sendCommand(p, p.hello())
	if err == nil {
		err = p.curveClient.welcome(p.body(t))
	}
	if err == nil {
		err = sendCommand(p,
			p.initiate(appendProperty(appendProperty(nil, propSocketType, []byte(kind)), propIdentity, []byte("me"))))
	}
	if err == nil {
		_, err = p.ready(p.body(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *curvePeer) body(t *testing.T) []byte {
	t.Helper()
	_, body, err := p.fr.frame()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// say sends a frame that is the last of its message.
func (p *curvePeer) say(t *testing.T, s string) {
	t.Helper()
	if _, err := p.Write(appendFrames(p.message(0, []byte(s)))); err != nil {
		t.Fatal(err)
	}
}

// hear reads a frame.
func (p *curvePeer) hear(t *testing.T) string {
	t.Helper()
	_, body, err := p.open(p.body(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func curveRouter(t *testing.T, opt Options) (*Router, chan error) {
	t.Helper()
	refused := make(chan error, 64)
	opt.Curve = serverKeys(0)
	opt.Refused = func(_ string, err error) { refused <- err }
	r, err := ListenRouter("tcp://127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(0) })
	return r, refused
}

// Ensure what is no handshake is refused from its header on, and what is not encrypted after it.
func TestCurveProtocolErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		shaken     bool
		send       string
	}{
		{
			name: "HELLO of 1 GiB", want: "a longer frame than is allowed",
			send: string(binary.BigEndian.AppendUint64([]byte{6}, 1<<30)),
		},
		{name: "HELLO of 201 bytes", want: "a longer frame than is allowed", send: "\x04\xc9"},
		{name: "a message first", want: "a message before HELLO", send: "\x00\x01x"},
		{name: "READY first", want: "is not a HELLO", send: "\x04\x06\x05READY"},
		{name: "INITIATE first", want: "is not a HELLO", send: "\x04\x09\x08INITIATE"},
		{name: "clear text after READY", want: "not a MESSAGE", shaken: true, send: "\x00\x03key"},
		{name: "PING in clear text", want: "not a MESSAGE", shaken: true, send: "\x04\x07\x04PING\x00\x00"},
		{name: "ERROR of a client", want: "not a MESSAGE", shaken: true, send: "\x04\x07\x05ERROR\x00"},
		{name: "MESSAGE in parts", want: "in parts", shaken: true, send: "\x01\x00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, refused := curveRouter(t, Options{})
			var p *curvePeer
			if tt.shaken {
				p = dialCurve(t, r.Addr(), "DEALER")
			} else {
				p = greetCurve(t, r.Addr())
			}
			if _, err := p.Write([]byte(tt.send)); err != nil {
				t.Fatal(err)
			}
			// Reset or end: the connection is closed.
			if b, _ := io.ReadAll(p.fr.r); len(b) > 0 && !strings.Contains(string(b), "\x05ERROR") {
				t.Errorf("answered %q", b)
			}
			if err := <-refused; !strings.Contains(err.Error(), tt.want) {
				t.Errorf("refused with %v, want %s", err, tt.want)
			}
		})
	}
}

// Ensure messages arrive complete and in order where some are written by the sending goroutine,
// some in part, and others from the queue, with a PONG between them.
func TestCurveSlowReader(t *testing.T) {
	t.Parallel()
	r, _ := curveRouter(t, Options{})
	p := dialCurve(t, r.Addr(), "DEALER")
	p.say(t, "hello")
	if m, err := r.Recv(); err != nil || string(m[0]) != "me" || string(m[1]) != "hello" {
		t.Fatalf("%q %v", m, err)
	}
	const messages = 3000
	size := func(n int) int { return []int{0, 100, directBelow - 100, directBelow, 70_000}[n%5] }
	for n := range messages { // over what the system buffers
		r.Send(Message{[]byte("me"), []byte(strconv.Itoa(n)), []byte(strings.Repeat("x", size(n)))})
	}
	if _, err := p.Write(appendFrames(p.message(sealedCommand, []byte("\x04PING\x00\x0actx")))); err != nil {
		t.Fatal(err)
	}
	for n := range messages {
		if got := p.hear(t); got != strconv.Itoa(n) {
			t.Fatalf("message %d is %.20q", n, got)
		}
		if got := p.hear(t); len(got) != size(n) {
			t.Fatalf("message %d has %d bytes", n, len(got))
		}
	}
	p.say(t, "still here")
	if m, err := r.Recv(); err != nil || string(m[1]) != "still here" {
		t.Fatalf("%q %v", m, err)
	}
	if _, err := p.Write(appendFrames(p.message(sealedCommand, []byte("\x04PING\x00\x0actx")))); err != nil {
		t.Fatal(err)
	}
	if flags, body, err := p.open(p.body(t)); err != nil || flags != sealedCommand || string(body) != "\x04PONGctx" {
		t.Fatalf("PING is answered with %d %q %v", flags, body, err)
	}
}

// Ensure each subscriber can read what it is sent, with its own key, and one that does not read
// delays no other and is disconnected when its queue is full.
func TestCurveSubscribers(t *testing.T) {
	t.Parallel()
	refused := make(chan error, 64)
	x, err := ListenXPub("tcp://127.0.0.1:0",
		Options{Curve: serverKeys(0), QueueHard: 4 << 20, Refused: func(_ string, err error) { refused <- err }}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close(0)
	var readers []*curvePeer
	for range 3 {
		p := dialCurve(t, x.Addr(), "SUB")
		p.say(t, "\x01")
		readers = append(readers, p)
	}
	for end := time.Now().Add(listenerPatience); ; time.Sleep(time.Millisecond) {
		n := 0
		x.mu.RLock()
		for p := range x.subs {
			if p.wants([]byte("x")) {
				n++
			}
		}
		x.mu.RUnlock()
		if n == len(readers) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d subscriptions", n)
		}
	}
	reading := readers[:2] // the last one does not
	body := strings.Repeat("x", 1<<20)
	for n := range 64 {
		x.Send(Message{[]byte(strconv.Itoa(n)), []byte(body)}, false)
		for _, p := range reading {
			if got := p.hear(t); got != strconv.Itoa(n) {
				t.Fatalf("%.20q, want %d", got, n)
			}
			if got := p.hear(t); got != body {
				t.Fatalf("%d bytes", len(got))
			}
		}
	}
	if err := <-refused; !strings.Contains(err.Error(), "does not read") {
		t.Error(err)
	}
}

// Ensure a client that has the public key keeps its place though it is silent: it has authenticated by its handshake.
func TestCurveSilentClient(t *testing.T) {
	t.Parallel()
	pending := handshake.NewLimiter(1, 0)
	r, _ := curveRouter(t, Options{Trusts: func(Message) bool { return true }, MaxPeers: 1, Unauthenticated: pending})
	p := dialCurve(t, r.Addr(), "DEALER")
	for end := time.Now().Add(listenerPatience); pending.Pending() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a client that has the public key has not authenticated")
		}
	}
	for range 4 {
		greetCurve(t, r.Addr())
	}
	p.say(t, "still here")
	if m, err := r.Recv(); err != nil || string(m[1]) != "still here" {
		t.Fatalf("%q %v", m, err)
	}
}

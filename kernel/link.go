package kernel

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	zmq "github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// link is one connection to the child. The library's sockets read a frame in two or
// three system calls and write each message on a goroutine of its own; a connection of
// it that reads through a buffer, and is written by whoever has something to say, halves
// what a cell costs. The peer is our own child: it sends no PING and no forged length.
type link struct {
	*net.UnixConn
	conn   *zmq.Conn // for the handshake and for reading
	r      *bufio.Reader
	direct func([]byte) int // writes what goes without waiting

	wake chan struct{}
	done chan struct{} // closed by end
	once sync.Once

	mu      sync.Mutex
	pending []byte // guarded by mu: encoded, for run to write
	writing bool   // guarded by mu: run holds bytes that go before pending
	scratch []byte // guarded by mu: for direct
}

const (
	linkBuffer       = 64 << 10
	handshakeTimeout = 10 * time.Second
)

// openLink connects to one of the child's sockets and makes the handshake.
func openLink(path string, kind zmq.SocketType, identity string) (*link, error) {
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l := &link{UnixConn: nc, r: bufio.NewReaderSize(nc, linkBuffer), wake: make(chan struct{}, 1), done: make(chan struct{})}
	err = nc.SetDeadline(time.Now().Add(handshakeTimeout))
	if err == nil {
		l.conn, err = zmq.Open(l, null.Security(), kind, zmq.SocketIdentity(identity), false, nil)
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = nc.Close() // it never was one
		return nil, fmt.Errorf("handshake: %w", err)
	}
	if l.direct = zmtp.TryWrite(nc); l.direct == nil {
		l.direct = func([]byte) int { return 0 }
	}
	return l, nil
}

// Read reads through the buffer.
func (l *link) Read(p []byte) (int, error) { return l.r.Read(p) }

// put sends a message, or queues what the child does not take at once. It never waits: a
// child that hangs must not hold up clients.
func (l *link) put(frames [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 || l.writing {
		l.pending = zmtp.AppendMessage(l.pending, frames)
		return // run has been woken
	}
	l.scratch = zmtp.AppendMessage(l.scratch[:0], frames)
	rest := l.scratch[l.direct(l.scratch):]
	if cap(l.scratch) > linkBuffer {
		l.scratch = nil // a large cell's; rest keeps it while it is needed
	}
	if len(rest) == 0 {
		return
	}
	l.pending = append(l.pending, rest...)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run writes what is queued, in order, until the link ends.
func (l *link) run() {
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		for b := l.take(); len(b) > 0; b = l.take() {
			if _, err := l.UnixConn.Write(b); err != nil {
				return // the child is gone; its requests are answered by childGone
			}
		}
	}
}

// take is what run is to write next, in turn; nil when there is nothing.
func (l *link) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.pending
	l.pending, l.writing = nil, len(b) > 0
	return b
}

// receive hands on what comes until the link ends. identity is what the child's ROUTER
// knows the link by, "" where its socket is none.
func (l *link) receive(identity string, take func([][]byte)) {
	for {
		m, err := l.conn.RecvMsg()
		if err != nil {
			return
		}
		if frames := behindCut(m.Frames, identity); len(frames) > 0 {
			take(frames)
		}
	}
}

// behindCut returns the frames of the last message among frames. An interrupt may end
// ipykernel's send between two frames of a message. Its socket takes the frames of the next
// message for the rest of that one, so they arrive as one, with the routing frame of the
// next, which is this link's identity, between them. What was cut short is lost.
func behindCut(frames [][]byte, identity string) [][]byte {
	if identity == "" {
		return frames
	}
	for i, frame := range slices.Backward(frames) {
		if string(frame) == identity {
			return frames[i+1:]
		}
	}
	return frames
}

// end closes the link, and so ends run and receive.
func (l *link) end() {
	l.once.Do(func() {
		close(l.done)
		_ = l.UnixConn.Close() // nobody is left at the other end
	})
}

// tail keeps the last of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

// Write takes everything.
func (t *tail) Write(p []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > most {
		t.b = append([]byte(nil), t.b[len(t.b)-most:]...)
	}
	return len(p), nil
}

// String is the last lines, in one.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(t.b), "")), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " / ")
}

package kernel

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	zmq "github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// link is one connection to the child. The ZeroMQ library's sockets use two or three system
// calls to read a frame and a separate goroutine to write each message. This connection reads
// through a buffer and is written by the sending goroutine, which halves the cost of a cell.
// The peer is our own child: it sends no PING and no forged length.
type link struct {
	*net.UnixConn
	conn   *zmq.Conn // for the handshake and for reading
	r      *bufio.Reader
	direct func([]byte) int // writes as much as possible without blocking

	wake chan struct{}
	done chan struct{} // closed by end

	mu      sync.Mutex
	pending []byte // guarded by mu: encoded, to be written by run
	writing bool   // guarded by mu: run is writing bytes that precede pending
	scratch []byte // guarded by mu: buffer for direct
}

const (
	linkBuffer       = 64 << 10
	handshakeTimeout = 10 * time.Second
)

// openLink connects to one of the child's sockets and performs the handshake.
func openLink(path string, kind zmq.SocketType, identity string) (*link, error) {
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l := &link{
		UnixConn: nc, r: bufio.NewReaderSize(zmtp.NewReader(nc), linkBuffer), wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	err = nc.SetDeadline(time.Now().Add(handshakeTimeout))
	if err == nil {
		l.conn, err = zmq.Open(l, null.Security(), kind, zmq.SocketIdentity(identity), false, nil)
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = nc.Close() // unused
		return nil, err
	}
	if l.direct = zmtp.TryWrite(nc); l.direct == nil {
		l.direct = func([]byte) int { return 0 }
	}
	return l, nil
}

// Read reads through the buffer.
func (l *link) Read(p []byte) (int, error) { return l.r.Read(p) }

// put sends a message, or queues what cannot be written immediately. It never blocks, because a
// child that hangs must not block clients.
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
		l.scratch = nil // large; rest refers to it while it is needed
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

// run writes queued bytes, in order, until the link ends.
func (l *link) run() {
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		for b := l.next(); len(b) > 0; b = l.next() {
			if _, err := l.UnixConn.Write(b); err != nil {
				return // the child has ended; childGone answers its requests
			}
		}
	}
}

// next returns the queued bytes that run writes next; nil if there are none.
func (l *link) next() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.pending
	l.pending, l.writing = nil, len(b) > 0
	return b
}

// receive passes messages to handle until the link ends. identity is the link's identity at the
// child's ROUTER, or "" for another socket.
func (l *link) receive(identity string, take func([][]byte)) {
	for {
		m, err := l.conn.RecvMsg()
		if err != nil {
			return
		}
		if frames := afterCut(m.Frames, identity); len(frames) > 0 {
			take(frames)
		}
	}
}

// afterCut returns the frames of the last message among frames. An interrupt may abort
// ipykernel's send between two frames of a message. Its socket then takes the frames of the
// next message for the rest of that one, so both arrive as one message, with the routing frame
// of the next message, which is this link's identity, between them. The incomplete message is
// lost.
func afterCut(frames [][]byte, identity string) [][]byte {
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

// end closes the link, which ends run and receive. It is called once.
func (l *link) end() {
	close(l.done)
	_ = l.UnixConn.Close() // no reader is left
}

// tail keeps the end of the data written to it.
type tail struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

// Write always succeeds.
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

// String returns the last lines, joined.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(t.b), "")), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " / ")
}

package kernel

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	zmq "github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// link is one connection to the child. The library's sockets read a frame in two or
// three system calls and write each message on a goroutine of its own; a connection of
// it over buffers halves what a cell costs. The peer is our own child: it sends no PING
// and no forged length.
type link struct {
	*net.UnixConn
	conn *zmq.Conn
	r    *bufio.Reader
	w    *bufio.Writer // nil during the handshake; afterwards owned by run

	wake chan struct{}
	done chan struct{} // closed by end
	once sync.Once

	mu    sync.Mutex
	queue [][][]byte // guarded by mu
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
	l.w = bufio.NewWriterSize(nc, linkBuffer)
	return l, nil
}

// Read reads through the buffer.
func (l *link) Read(p []byte) (int, error) { return l.r.Read(p) }

// Write writes into the buffer, which run flushes.
func (l *link) Write(p []byte) (int, error) {
	if l.w == nil {
		return l.UnixConn.Write(p)
	}
	return l.w.Write(p)
}

// put queues a message. It never waits: a child that hangs must not hold up clients.
func (l *link) put(frames [][]byte) {
	l.mu.Lock()
	l.queue = append(l.queue, frames)
	l.mu.Unlock()
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
		l.mu.Lock()
		q := l.queue
		l.queue = nil
		l.mu.Unlock()
		for _, frames := range q {
			if err := l.conn.SendMsg(zmq.NewMsgFrom(frames...)); err != nil {
				return // the child is gone; its requests are answered by childGone
			}
		}
		if err := l.w.Flush(); err != nil {
			return
		}
	}
}

// receive hands on what comes until the link ends.
func (l *link) receive(take func([][]byte)) {
	for {
		m, err := l.conn.RecvMsg()
		if err != nil {
			return
		}
		take(m.Frames)
	}
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

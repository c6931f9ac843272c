// Package handshake limits the connections that have not authenticated. Anybody who reaches a port can open one, and
// each takes a descriptor of those that the process needs for its own.
package handshake

import (
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Timeout is the time for a whole handshake, of TLS or of a kernel's socket, and, in TLS, the first message behind it.
	Timeout = 10 * time.Second
	// Minimum is the usual age below which a connection is not closed for another one.
	Minimum = time.Second

	most = 256
)

// AtOnce returns how many connections may be in their handshake: a quarter of the process's descriptors at most.
func AtOnce() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(max(4, min(most, limit.Cur/4)))
}

// Limiter limits the connections that have not authenticated, over all its listeners: a connection counts from Accept
// to Done. When there are too many, the next one waits until the oldest has the minimum age, which is then closed: who
// has a certificate or a key authenticates within a few round trips. Its methods may be called from any goroutine.
type Limiter struct {
	limit   int
	minimum time.Duration

	mu sync.Mutex
	// guarded by mu
	pending []pendingConn // oldest first
	freed   chan struct{} // cap 1
}

// pendingConn is a connection that has not authenticated.
type pendingConn struct {
	conn  net.Conn
	since time.Time
}

// NewLimiter returns a Limiter of so many connections, of which none is closed before it has the minimum age.
func NewLimiter(limit int, minimum time.Duration) *Limiter {
	return &Limiter{limit: limit, minimum: minimum, freed: make(chan struct{}, 1)}
}

// Pending returns the number of connections that have not authenticated.
func (h *Limiter) Pending() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.pending)
}

// Done ends the counting of a connection that Accept of a listener has returned.
func (h *Limiter) Done(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending = slices.DeleteFunc(h.pending, func(p pendingConn) bool { return p.conn == conn })
	select {
	case h.freed <- struct{}{}:
	default:
	}
}

// add counts a connection once there is room for it. It gives up when stop is closed.
func (h *Limiter) add(conn net.Conn, stop <-chan struct{}) {
	for {
		wait := h.tryAdd(conn)
		if wait == 0 {
			return
		}
		select {
		case <-h.freed:
		case <-time.After(wait):
		case <-stop:
			return
		}
	}
}

// tryAdd counts a connection. If there are too many it closes the oldest, or returns how long the oldest may still
// last.
func (h *Limiter) tryAdd(conn net.Conn) (wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) >= h.limit {
		if wait := h.minimum - time.Since(h.pending[0].since); wait > 0 {
			return wait
		}
		_ = h.pending[0].conn.Close() // its handshake fails
		h.pending = slices.Delete(h.pending, 0, 1)
	}
	h.pending = append(h.pending, pendingConn{conn, time.Now()})
	return 0
}

// Listen returns ln, whose connections are counted.
func (h *Limiter) Listen(ln net.Listener) net.Listener {
	return &listener{Listener: ln, limiter: h, closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	limiter *Limiter
	closing sync.Once
	closed  chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.limiter.add(conn, l.closed)
	return conn, nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

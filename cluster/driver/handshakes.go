package driver

import (
	"container/list"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/tfcluster/tfcluster/cluster/auth"
)

// Limits of connections that have not authenticated. Anybody who reaches the agents' port
// can open one, and each takes a descriptor of those that the control socket needs too.
const (
	handshakeTimeout = 10 * time.Second // for a whole TLS handshake
	handshakeMinimum = time.Second      // a connection younger than this is not closed for another one
	handshakesMost   = 256
)

// handshakesAtOnce is how many connections may be in their handshake: a quarter of the
// process's descriptors at most.
func handshakesAtOnce() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return handshakesMost
	}
	return int(max(4, min(handshakesMost, limit.Cur/4)))
}

// handshakes limits the connections that have not authenticated, over all listeners of a
// server: a connection counts from Accept to the end of its handshake. When there are too
// many, the next one waits until the oldest is handshakeMinimum old, which is then closed:
// an agent authenticates within a few round trips.
type handshakes struct {
	limit   int
	minimum time.Duration

	mu sync.Mutex
	// guarded by mu
	pending *list.List // of pendingConn, oldest first
	at      map[net.Conn]*list.Element
	freed   chan struct{} // cap 1
}

// pendingConn is a connection that has not authenticated.
type pendingConn struct {
	conn  net.Conn
	since time.Time
}

func newHandshakes(limit int, minimum time.Duration) *handshakes {
	return &handshakes{limit: limit, minimum: minimum, pending: list.New(), at: map[net.Conn]*list.Element{}, freed: make(chan struct{}, 1)}
}

// done ends the counting of a connection.
func (h *handshakes) done(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.at[conn]; at != nil {
		h.pending.Remove(at)
		delete(h.at, conn)
	}
	select {
	case h.freed <- struct{}{}:
	default:
	}
}

// add counts a connection once there is room for it. It gives up when stop is closed.
func (h *handshakes) add(conn net.Conn, stop <-chan struct{}) {
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

// tryAdd counts a connection. If there are too many it closes the oldest, or returns how long
// the oldest may still last.
func (h *handshakes) tryAdd(conn net.Conn) (wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending.Len() >= h.limit {
		at := h.pending.Front()
		oldest := at.Value.(pendingConn)
		if wait := h.minimum - time.Since(oldest.since); wait > 0 {
			return wait
		}
		h.pending.Remove(at)
		delete(h.at, oldest.conn)
		_ = oldest.conn.Close() // its handshake fails
	}
	h.at[conn] = h.pending.PushBack(pendingConn{conn, time.Now()})
	return 0
}

// listen limits the connections of a listener.
func (h *handshakes) listen(ln net.Listener) net.Listener {
	return &handshakeListener{Listener: ln, handshakes: h, closed: make(chan struct{})}
}

type handshakeListener struct {
	net.Listener
	handshakes *handshakes
	closing    sync.Once
	closed     chan struct{}
}

// Accept implements net.Listener.
func (l *handshakeListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.handshakes.add(conn, l.closed)
	return conn, nil
}

// Close implements net.Listener.
func (l *handshakeListener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// produce serves the producer of a feed that its certificate names. It takes the connection and returns at once.
type produce func(conn net.Conn, feed string)

// options are a server's: its certificates, and the limits of handshakes.
func (h *handshakes) options(config *tls.Config, produce produce) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.Creds(h.credentials(credentials.NewTLS(config), produce)), grpc.ConnectionTimeout(handshakeTimeout)}
}

// credentials wraps the server's credentials, which know when a handshake has ended.
func (h *handshakes) credentials(c credentials.TransportCredentials, produce produce) credentials.TransportCredentials {
	return &handshakeCredentials{c, h, produce}
}

type handshakeCredentials struct {
	credentials.TransportCredentials
	handshakes *handshakes
	produce    produce
}

// lost is when a producer's host that has vanished is given up: another attempt waits for its partition.
var lost = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// ServerHandshake implements credentials.TransportCredentials.
func (c *handshakeCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	defer c.handshakes.done(conn) // one that failed has been closed
	secure, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	if feed := auth.ProducerFeed(info); feed != "" {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetKeepAliveConfig(lost) // else the system's
		}
		c.produce(secure, feed)
		return nil, nil, credentials.ErrConnDispatched
	}
	return secure, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c *handshakeCredentials) Clone() credentials.TransportCredentials {
	return &handshakeCredentials{c.TransportCredentials.Clone(), c.handshakes, c.produce}
}

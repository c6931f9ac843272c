package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/internal/unixsock"
)

// socketKind is a socket type and the types it may connect to (RFC 28).
type socketKind struct {
	name  string
	peers []string
}

// kindXPub is the name of the socket type that accepts subscriptions.
const kindXPub = "XPUB"

// ErrClosed is returned by a closed socket.
var ErrClosed = errors.New("the socket is closed")

// listener is the common part of ROUTER and XPUB: it accepts peers, performs each handshake on
// a separate goroutine, and owns all goroutines of the socket.
type listener struct {
	// Static after construction.
	kind     socketKind
	opt      Options
	ln       net.Listener
	receive  func(*peer, Message) // a complete message arrived; called on the peer's goroutine
	admitted func(*peer)          // the handshake succeeded
	left     func(*peer)
	done     chan struct{} // closed by close
	work     sync.WaitGroup

	mu     sync.Mutex
	peers  map[*peer]struct{} // guarded by mu: admitted or in the handshake
	known  int                // guarded by mu: how many of peers have authenticated
	nextID uint32             // guarded by mu
	closed bool               // guarded by mu
}

// peer is one connection. Its reader and writer end together.
type peer struct {
	nc       net.Conn
	identity []byte
	queue    *queue
	gone     chan struct{} // closed by drop
	once     sync.Once
	known    bool // it has authenticated; used by its reader only

	mu         sync.Mutex
	subs       map[string]int // guarded by mu: an XPUB peer's topics
	topicBytes int            // guarded by mu: the sum of their lengths
}

func (p *peer) drop() {
	p.once.Do(func() {
		close(p.gone)
		p.queue.close()
		_ = p.nc.Close() // the connection ends in any case
	})
}

// listen opens an endpoint, tcp://HOST:PORT or ipc://PATH.
func (l *listener) listen(endpoint string) error {
	var ln net.Listener
	var err error
	if path, ok := strings.CutPrefix(endpoint, "ipc://"); ok {
		ln, err = unixsock.Listen(path)
	} else {
		ln, err = net.Listen("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	}
	if err != nil {
		return err
	}
	l.ln, l.peers, l.done = l.opt.Unauthenticated.Listen(ln), map[*peer]struct{}{}, make(chan struct{})
	l.work.Go(l.accept)
	return nil
}

// accept accepts peers until the socket is closed. If Accept fails, for example for lack of
// descriptors, it is retried with growing pauses.
func (l *listener) accept() {
	pause := time.Millisecond
	for {
		nc, err := l.ln.Accept()
		if err == nil {
			pause = time.Millisecond
			l.begin(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case <-l.done:
			return
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

func (l *listener) begin(nc net.Conn) {
	p := &peer{
		nc: nc, queue: newQueue(l.opt.QueueSoft, l.opt.QueueHard), gone: make(chan struct{}), subs: map[string]int{},
	}
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.peers[p] = struct{}{}
	}
	l.mu.Unlock()
	if closed {
		l.opt.Unauthenticated.Done(nc)
		_ = nc.Close() // no data was exchanged yet
		return
	}
	l.work.Go(func() { l.serve(p) })
}

// errTooManyPeers reports a peer beyond MaxPeers.
var errTooManyPeers = errors.New("too many clients are connected: close notebooks or consoles of this kernel")

// authenticated counts a peer among those that have authenticated. It is called on the peer's goroutine.
func (l *listener) authenticated(p *peer) error {
	if p.known {
		return nil
	}
	l.opt.Unauthenticated.Done(p.nc)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known >= l.opt.MaxPeers {
		return errTooManyPeers
	}
	l.known++
	p.known = true
	return nil
}

// serve performs the handshake of a peer and runs its writer and reader until it ends.
func (l *listener) serve(p *peer) {
	defer func() {
		p.drop()
		l.opt.Unauthenticated.Done(p.nc)
		l.mu.Lock()
		delete(l.peers, p)
		if p.known {
			l.known--
		}
		l.mu.Unlock()
	}()
	fr := &frameReader{
		r: bufio.NewReaderSize(NewReader(p.nc), 64<<10), maxFrame: l.opt.MaxFrame, maxMessage: l.opt.MaxMessage,
		maxFrames: l.opt.MaxFrames,
		allowed:   allowance{trusted: l.opt.Trusts == nil, most: l.opt.MaxUntrusted, budget: l.opt.Untrusted},
	}
	defer func() { fr.allowed.release() }()
	err := p.nc.SetDeadline(time.Now().Add(l.opt.HandshakeTimeout))
	if err == nil {
		p.identity, p.queue.seal, err = performHandshake(p.nc, fr, l.kind, l.opt.Curve)
	}
	if err == nil && l.opt.Curve != nil {
		err = l.authenticated(p)
	}
	if err == nil {
		err = p.nc.SetDeadline(time.Time{})
	}
	if err != nil {
		if !violates(err) {
			err = fmt.Errorf("the client left, or was too slow, before the connection was ready: %w", err)
		}
		l.opt.Refused(p.nc.RemoteAddr().String(), err)
		return
	}
	if len(p.identity) == 0 {
		l.mu.Lock()
		l.nextID++
		p.identity = binary.BigEndian.AppendUint32([]byte{0}, l.nextID)
		l.mu.Unlock()
	}
	p.queue.direct = TryWrite(p.nc)
	l.admitted(p)
	defer l.left(p)
	l.work.Go(func() { l.write(p) })
	if err := l.read(p, fr); err != nil {
		l.opt.Refused(p.nc.RemoteAddr().String(), err)
	}
}

// violates reports whether a connection ended because of what the peer sent or did not read, and not because it left.
func violates(err error) bool {
	all := []error{
		ErrHandshake, ErrFrameTooLong, ErrMessageTooLong, ErrTooManyFrames, ErrBadFrame, ErrUntrusted, errQueueFull,
		errTooManyPeers,
	}
	return slices.ContainsFunc(all, func(e error) bool { return errors.Is(err, e) })
}

// read passes on the peer's messages until it disconnects; an error means that it violated the
// protocol.
func (l *listener) read(p *peer, fr *frameReader) error {
	for {
		m, err := fr.message(func(body []byte) error { return l.command(p, body) })
		switch {
		case violates(err):
			return err
		case err != nil:
			return nil //nolint:nilerr // the peer went away
		}
		if !fr.allowed.trusted {
			fr.allowed.trusted = l.opt.Trusts(m)
			fr.allowed.release()
		}
		if !fr.allowed.trusted { // dropped here, so messages of untrusted peers do not pile up anywhere
			l.opt.Refused(p.nc.RemoteAddr().String(), errDistrusted)
			continue
		}
		if err := l.authenticated(p); err != nil {
			return err
		}
		l.receive(p, m)
	}
}

// errDistrusted reports a message dropped because Trusts returned false.
var errDistrusted = errors.New(
	"a message without a valid signature was dropped: its sender does not have this kernel's connection file")

// command answers PING with its context (RFC 37, "Connection Heartbeating"). SUBSCRIBE and
// CANCEL are the subscriptions of ZMTP 3.1. Sockets other than XPUB ignore them: a command does
// not pass Trusts, so it must not become a message.
func (l *listener) command(p *peer, body []byte) error {
	name, data, err := parseCommand(body)
	if err != nil {
		return err
	}
	subscribes := l.kind.name == kindXPub
	if subscribes && name == "SUBSCRIBE" && l.opt.Trusts == nil {
		if err := l.authenticated(p); err != nil {
			return err
		}
	}
	switch {
	case name == "PING":
		if len(data) < 2 {
			return fmt.Errorf("%w: a PING without its time to live", ErrBadFrame)
		}
		return p.queue.putCommand(commandBody("PONG", data[2:min(len(data), 18)]))
	case name == "SUBSCRIBE" && subscribes:
		l.receive(p, Message{append([]byte{1}, data...)})
	case name == "CANCEL" && subscribes:
		l.receive(p, Message{append([]byte{0}, data...)})
	}
	return nil
}

// Addr returns the address of the socket.
func (l *listener) Addr() net.Addr { return l.ln.Addr() }

// Close stops accepting, waits up to linger for peers to read queued messages, and ends all
// goroutines of the socket. It may be called again.
func (l *listener) Close(linger time.Duration) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	err := l.ln.Close()
	for end := time.Now().Add(linger); time.Now().Before(end) && !l.drained(); {
		time.Sleep(time.Millisecond)
	}
	close(l.done)
	l.mu.Lock()
	for p := range l.peers {
		p.drop()
	}
	l.mu.Unlock()
	l.work.Wait()
	return err
}

func (l *listener) drained() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.peers {
		if !p.queue.empty() {
			return false
		}
	}
	return true
}

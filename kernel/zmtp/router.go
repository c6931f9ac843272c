package zmtp

import (
	"slices"
	"sync"
)

// Router is a ROUTER socket: received messages begin with the sender's identity; sent messages
// begin with the identity of the receiver (RFC 28).
type Router struct {
	listener
	in     chan Message  // nil if handle is set
	handle func(Message) // called with turn held

	turn sync.Mutex

	mu   sync.RWMutex
	byID map[string][]*peer // guarded by mu: peers of an identity, newest last
}

// ListenRouter opens a ROUTER socket at tcp://HOST:PORT or ipc://PATH, to be read with Recv.
func ListenRouter(endpoint string, opt Options) (*Router, error) {
	return listenRouter(endpoint, opt, &Router{in: make(chan Message, 64)})
}

// ServeRouter opens a ROUTER socket that calls handle with each message, one at a time, on the
// goroutine that read it: if handling is short, waking another goroutine would cost more. Calls
// may begin before ServeRouter returns. handle must not close the socket.
func ServeRouter(endpoint string, opt Options, handle func(Message)) (*Router, error) {
	return listenRouter(endpoint, opt, &Router{handle: handle})
}

func listenRouter(endpoint string, opt Options, r *Router) (*Router, error) {
	r.byID = map[string][]*peer{}
	r.listener = listener{
		kind: socketKind{"ROUTER", []string{"DEALER", "REQ", "ROUTER"}}, opt: opt.withDefaults(),
		receive: r.received, admitted: r.enter, left: r.leave,
	}
	if err := r.listen(endpoint); err != nil {
		return nil, err
	}
	return r, nil
}

// enter makes a peer reachable. A peer with the identity of an older one receives the messages
// until it disconnects; then the older one receives them again: a reloaded page leaves its
// earlier connection half open, and clients of one session share an identity. The older peer is
// not closed, because its client would reconnect at once.
func (r *Router) enter(p *peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[string(p.identity)] = append(r.byID[string(p.identity)], p)
}

func (r *Router) leave(p *peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := string(p.identity)
	r.byID[id] = slices.DeleteFunc(r.byID[id], func(o *peer) bool { return o == p })
	if len(r.byID[id]) == 0 {
		delete(r.byID, id)
	}
}

func (r *Router) received(p *peer, m Message) {
	full := append(append(make(Message, 0, len(m)+1), p.identity), m...)
	if r.handle != nil {
		r.turn.Lock()
		defer r.turn.Unlock()
		r.handle(full)
		return
	}
	select {
	case r.in <- full:
	case <-p.gone:
	case <-r.done:
	}
}

// Recv returns the next message of a socket of ListenRouter, or ErrClosed after Close.
func (r *Router) Recv() (Message, error) {
	select {
	case m := <-r.in:
		return m, nil
	case <-r.done:
		return nil, ErrClosed
	}
}

// Send queues a message for the peer whose identity is its first frame. As with any ROUTER, a
// message to an unknown identity is dropped. It never blocks.
func (r *Router) Send(m Message) {
	if len(m) < 2 {
		return
	}
	r.mu.RLock()
	same := r.byID[string(m[0])]
	if len(same) == 0 {
		r.mu.RUnlock()
		return
	}
	p := same[len(same)-1]
	r.mu.RUnlock()
	if err := p.queue.put(m[1:], false); err != nil {
		p.drop()
		r.opt.Refused(p.nc.RemoteAddr().String(), err)
	}
}

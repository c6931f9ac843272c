package zmtp

import (
	"slices"
	"sync"
)

// Router is a ROUTER socket: messages come with their sender's identity in front, and
// are sent to the peer whose identity stands in front (RFC 28).
type Router struct {
	listener
	in     chan Message  // nil where handle takes what comes
	handle func(Message) // called with turn held

	turn sync.Mutex

	mu   sync.RWMutex
	byID map[string][]*peer // guarded by mu: the newest is last
}

// ListenRouter opens a ROUTER socket at tcp://HOST:PORT or ipc://PATH, to be read with Recv.
func ListenRouter(endpoint string, opt Options) (*Router, error) {
	return listenRouter(endpoint, opt, &Router{in: make(chan Message, 64)})
}

// ServeRouter opens a ROUTER socket that calls handle with each message, one at a time, on
// the goroutine that read it: where a message's way is short, waking another costs more than
// handling it. Calls may begin before ServeRouter returns. handle must not close the socket.
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

// enter makes a peer reachable. One that comes under the identity of another takes its
// place while it stays, and gives it back when it goes: a page that was reloaded leaves
// its earlier connection half open, and clients of one session share an identity. The
// earlier one is not closed, since a client that is would connect again at once.
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

// Recv waits for the next message of a socket of ListenRouter; ErrClosed after Close.
func (r *Router) Recv() (Message, error) {
	select {
	case m := <-r.in:
		return m, nil
	case <-r.done:
		return nil, ErrClosed
	}
}

// Send queues a message for the peer whose identity is its first frame. One to nobody
// is dropped, as ROUTER does. It never waits.
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

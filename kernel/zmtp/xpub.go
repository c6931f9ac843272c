package zmtp

import (
	"bytes"
	"sync"
)

// XPub is an XPUB socket: a message is sent to every peer that subscribed to a prefix of its
// first frame, and subscriptions are reported (RFC 29).
type XPub struct {
	listener
	subscribed func(topic []byte)

	mu   sync.RWMutex
	subs map[*peer]struct{} // guarded by mu
}

// ListenXPub opens an XPUB socket at tcp://HOST:PORT or ipc://PATH. subscribed, which may be
// nil, is called for each new subscription on the peer's goroutine, once messages of the topic
// are sent to the peer.
func ListenXPub(endpoint string, opt Options, subscribed func(topic []byte)) (*XPub, error) {
	x := &XPub{subs: map[*peer]struct{}{}, subscribed: subscribed}
	x.listener = listener{
		kind: socketKind{kindXPub, []string{"SUB", "XSUB"}}, opt: opt.withDefaults(),
		receive: x.received, admitted: x.enter, left: x.leave,
	}
	if err := x.listen(endpoint); err != nil {
		return nil, err
	}
	return x, nil
}

func (x *XPub) enter(p *peer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.subs[p] = struct{}{}
}

func (x *XPub) leave(p *peer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.subs, p)
}

// received processes a subscription: one byte, 1 or 0, and the topic. It ignores any other
// message.
func (x *XPub) received(p *peer, m Message) {
	if len(m) != 1 || len(m[0]) == 0 || m[0][0] > 1 {
		return
	}
	topic := string(m[0][1:])
	p.mu.Lock()
	if m[0][0] == 0 {
		if p.subs[topic] == 1 {
			delete(p.subs, topic)
			p.topicBytes -= len(topic)
		} else if p.subs[topic] > 1 {
			p.subs[topic]--
		}
		p.mu.Unlock()
		return
	}
	if p.subs[topic] > 0 {
		p.subs[topic]++
	} else if len(p.subs) < maxTopics && p.topicBytes+len(topic) <= maxTopicBytes {
		p.subs[topic] = 1
		p.topicBytes += len(topic)
	}
	p.mu.Unlock()
	if x.subscribed != nil {
		x.subscribed(m[0][1:])
	}
}

// maxTopics and maxTopicBytes limit the subscriptions of one peer.
const (
	maxTopics     = 1024
	maxTopicBytes = 64 << 10
)

func (p *peer) wants(topic []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subs[""] > 0 {
		return true
	}
	for t := range p.subs {
		if bytes.HasPrefix(topic, []byte(t)) {
			return true
		}
	}
	return false
}

// Send queues a message for its subscribers. For peers whose queue is above its soft limit, a
// droppable message is replaced by a note. It never blocks.
func (x *XPub) Send(m Message, droppable bool) {
	if len(m) == 0 {
		return
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for p := range x.subs {
		if !p.wants(m[0]) {
			continue
		}
		if err := p.queue.put(m, droppable); err != nil {
			p.drop()
			x.opt.Refused(p.nc.RemoteAddr().String(), err)
		}
	}
}

package kernel

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// passedRequest is a request other than a cell of the main shell, which the child alone
// answers. It is kept so that it is ended if the child ends first.
type passedRequest struct {
	msg  *wire.Message
	to   channel
	sent bool     // to the child, not kept for the next one
	seen progress // messages of the child
}

// passedRequests are the requests that have not got both their reply and their idle, in order.
type passedRequests []*passedRequest

// mostPassed limits passedRequests: the child never replies to a request that it does not
// know, or whose handler an interrupt ends.
const mostPassed = 256

// add keeps a request, and forgets the oldest of too many.
func (p *passedRequests) add(r *passedRequest) {
	if len(*p) >= mostPassed {
		*p = slices.Delete(*p, 0, 1)
	}
	*p = append(*p, r)
}

// note records a status of the child for a request.
func (p *passedRequests) note(frames [][]byte, request string) {
	if bytes.Contains(frames[len(frames)-1], []byte(`"idle"`)) {
		p.see(request, begun|idled)
		return
	}
	p.see(request, begun)
}

// see records messages of the child for a request.
func (p *passedRequests) see(request string, signs progress) {
	i := slices.IndexFunc(*p, func(r *passedRequest) bool { return r.msg.Header.MsgID == request })
	if i < 0 {
		return
	}
	r := (*p)[i]
	if r.seen |= signs; r.seen&(idled|replied) == idled|replied {
		*p = slices.Delete(*p, i, i+1)
	}
}

// replyPassed records the child's reply to a request.
func (k *Kernel) replyPassed(request string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.passed.see(request, replied)
}

// refusePassed ends the requests of a child that has ended and, if no other child follows,
// those that waited for one. The caller holds mu.
func (k *Kernel) refusePassed(why string) {
	var kept passedRequests
	for _, r := range k.passed {
		if !r.sent && k.broken == "" {
			kept = append(kept, r)
			continue
		}
		if r.seen&begun == 0 {
			k.status(r.msg.RawHeader(), "busy")
		}
		if reply, isRequest := strings.CutSuffix(r.msg.Header.MsgType, "_request"); isRequest && r.seen&replied == 0 {
			k.answerDead(r.msg, reply+"_reply", why, r.to)
		}
		if r.seen&idled == 0 {
			k.status(r.msg.RawHeader(), "idle")
			k.busyAgain()
		}
	}
	k.passed = kept
}

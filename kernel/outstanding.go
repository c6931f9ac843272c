package kernel

import (
	"slices"
	"time"
)

// progress is the set of a cell's messages that have arrived from the child.
type progress uint8

// For a cell, the child publishes busy, then publishes idle and replies. The last two arrive on
// different sockets, in any order.
const (
	begun progress = 1 << iota
	idled
	replied

	unchecked progress = 1 << 7 // initial value of request.checked, before any check
)

// childState is the state of the child, ipykernel, and of the requests sent to it.
type childState struct {
	child       *child         // nil while none is ready
	waiting     []outgoing     // messages that wait for a child to be ready
	outstanding []*request     // cells forwarded and not finished, in order
	seq         uint64         // sequence number of the last request to the child
	marks       markers        // to detect lost messages
	childBusy   busyRequests   // requests that the child is processing
	passed      passedRequests // requests other than cells
	repair      string         // ID of the request of endAborting
	checkPlan   checkPlan      // interval of the next checkLost
	watchTimer  *time.Timer    // runs checkLost
	broken      string         // why no child can be started any more
	deaths      int            // consecutive deaths of children that lived less than minLife
}

// track adds a cell that is sent to the child. The caller holds mu.
func (k *Kernel) track(r *request) {
	k.seq++
	r.seq, r.sent, r.checked, r.alone = k.seq, k.child != nil, unchecked, len(k.outstanding) == 0
	k.outstanding = append(k.outstanding, r)
	k.watchLost()
}

// awaiting returns the cell for which a message from the child is missing, or nil. Clients may
// send two cells with one ID: the child serves them in order, so the message belongs to the
// first cell that has not got it. The caller holds mu.
func (k *Kernel) awaiting(id string, sign progress) *request {
	for _, r := range k.outstanding {
		if r.seen&sign == 0 && r.msg.Header.MsgID == id {
			return r
		}
	}
	return nil
}

// drop removes an outstanding cell. The caller holds mu.
func (k *Kernel) drop(r *request) {
	k.outstanding = slices.DeleteFunc(k.outstanding, func(o *request) bool { return o == r })
}

// finish continues with the queue after a cell that has both its reply and its idle: they
// arrive on different sockets, and output of a matched cell must not overtake the output of the
// cell before it. The caller holds mu.
func (k *Kernel) finish(r *request) {
	if r.seen&idled == 0 || r.seen&replied == 0 {
		k.watchLost()
		return
	}
	k.drop(r)
	k.abort(r.toAbort)
	k.flushTicks()
	k.pump()
}

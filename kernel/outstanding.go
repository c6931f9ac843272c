package kernel

import "time"

// progress is which of a cell's signs of life have come from the child.
type progress uint8

// A cell that the child was given publishes busy, then publishes idle and replies. The last two
// come on different sockets, so either may be the first.
const (
	begun progress = 1 << iota
	idled
	replied

	unchecked progress = 1 << 7 // no sign: what request.checked holds at first
)

// childState is what is known of the child, ipykernel, and of what was sent to it.
type childState struct {
	child       *child       // nil while none is ready
	waiting     []outgoing   // for a child that is not ready
	outstanding []*request   // cells forwarded and not finished, in order
	seq         uint64       // of what was sent to the child last
	marks       markers      // which replies may be lost
	childBusy   busyRequests // what the child says that it works on
	repair      string       // the request that ends the child's aborting
	lookout     lookout      // when checkLost is due
	watchTimer  *time.Timer  // runs checkLost
	broken      string       // why there will be no child
	deaths      int          // of children that hardly lived
}

// track remembers a cell that goes to the child. Caller holds mu.
func (k *Kernel) track(r *request) {
	k.seq++
	r.seq, r.given, r.checked, r.alone = k.seq, k.child != nil, unchecked, len(k.outstanding) == 0
	k.outstanding = append(k.outstanding, r)
	k.watchLost()
}

// lacking finds the cell that a sign from the child belongs to, nil for none. Clients may send
// two cells under one id: the child serves them in order, so the sign is the first one's that
// lacks it. Caller holds mu.
func (k *Kernel) lacking(id string, sign progress) *request {
	for _, r := range k.outstanding {
		if r.seen&sign == 0 && r.msg.Header.MsgID == id {
			return r
		}
	}
	return nil
}

// drop forgets an outstanding cell. Caller holds mu.
func (k *Kernel) drop(r *request) {
	for i, o := range k.outstanding {
		if o == r {
			k.outstanding = append(k.outstanding[:i], k.outstanding[i+1:]...)
			return
		}
	}
}

// finish lets the queue go on behind a cell that has replied and whose idle is out: the two come
// on different sockets, and what a matched cell says must not overtake what the cell before it
// printed. Caller holds mu.
func (k *Kernel) finish(r *request) {
	if r.seen&idled == 0 || r.seen&replied == 0 {
		k.watchLost()
		return
	}
	k.drop(r)
	k.abort(r.doomed)
	k.flushTicks()
	k.pump()
}

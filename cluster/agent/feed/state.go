package feed

import (
	"encoding/json"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// reading is the feed in which the holder takes part. Its fields are guarded by the holder's mu.
type feedState struct {
	id    int64
	key   string // the key of producers
	plan  json.RawMessage
	begun bool // the program has sent how it reads
	even  bool
	batch int64 // records that the program takes at once; 0: not known
	left  bool  // the program reads no more
	queue []piece
	at    int // the epoch that the program reads
	all   map[int]*epoch
	over  *clusterpb.FeedOver
	fed   *clusterpb.FeedOver // as over, also if another feed follows: no more records are taken
	told  bool                // over was sent to the program
	owing
}

// epoch has the holder's numbers of one epoch.
type epoch struct {
	held      *clusterpb.FeedHeld
	allowed   int64
	announced int64 // records handed out
	over      *clusterpb.FeedEpochOver
	changed   bool // held must be reported
}

// piece is a part of a batch that has not been handed out: records [begin, end).
type piece struct {
	slot       int
	epoch      int
	begin, end int64
	source     origin
}

// slot is a part of the memory. A filled slot becomes empty when none of its records is needed.
type slot struct {
	state slotState
	bytes int64
	rows  int64 // records that are still needed
	to    int64 // producer that reads the results in it
	lent  int64 // records of rows that were handed to the program
}

type slotState int

const (
	empty slotState = iota
	granted
	filled
	returned // results for a producer
)

func (f *feedState) epoch(number int) *epoch {
	e := f.all[number]
	if e == nil {
		e = &epoch{held: &clusterpb.FeedHeld{Feed: f.id, Epoch: int32(number)}}
		f.all[number] = e
	}
	return e
}

// begin begins a feed. It drops the remaining records of the feed before.
func (h *Holder) begin(b *clusterpb.FeedBegin) {
	if f := h.feed; f != nil { // its remaining records make room
		h.dropIf(f, func(piece) bool { return true })
	}
	for _, p := range h.producers { // producers of a source that was given up
		p.stop("")
	}
	defer h.freed.Broadcast() // producers may have come before the order
	h.feed = &feedState{
		id: b.GetFeed(), key: b.GetKey(), plan: json.RawMessage(b.GetPlan()), all: map[int]*epoch{},
		owing: newOwing(b.GetPlan()),
	}
	if h.consumer != nil {
		h.consumer.wants = 0
		h.consumer.peer.send(message{Op: "feed", Feed: h.feed.id, Plan: h.feed.plan}, nil)
	}
	if h.departed {
		h.leave()
	}
}

// handOut gives the program the records that it waits for, as far as they are here and allowed.
func (h *Holder) handOut() {
	f, c := h.feed, h.consumer
	if f == nil || c == nil || !f.begun || f.left {
		return
	}
	for c.wants > 0 && !f.told {
		e := f.epoch(f.at)
		switch {
		case f.over.GetReason() != "":
			f.told = true
			c.peer.send(message{Op: "over", Feed: f.id, Reason: f.over.GetReason()}, nil)
		case e.over != nil && (e.announced == e.over.GetRows() || f.answers):
			h.endEpoch(f, e)
		case e.over == nil && f.over != nil: // after the last epoch
			f.told = true
			c.peer.send(message{Op: "over", Feed: f.id}, nil)
		case !h.handOutPiece(f, e) && !h.flush(f, c):
			h.changed(f.at) // the program starves
			return
		}
	}
}

// endEpoch informs the program of the end of an epoch, and drops the records that are left out of it.
func (h *Holder) endEpoch(f *feedState, e *epoch) {
	h.dropIf(f, func(p piece) bool { return p.epoch == f.at })
	h.consumer.peer.send(epochOverLine{"epoch_over", e.over}, nil)
	f.at++
}

// handOutPiece gives the program the next piece of an epoch. It returns false if there is none.
func (h *Holder) handOutPiece(f *feedState, e *epoch) bool {
	limit := e.allowed - e.announced
	if e.over != nil {
		limit = e.over.GetRows() - e.announced
	}
	for at, p := range f.queue {
		n := p.end - p.begin
		if f.even || e.over != nil {
			n = min(n, limit)
		}
		if p.epoch != f.at || n < 1 {
			continue
		}
		h.consumer.wants--
		h.slots[p.slot].lent += n
		e.announced += n
		h.consumer.peer.send(message{
			Op: "batch", Feed: f.id, place: place{Slot: p.slot, Bytes: h.slots[p.slot].bytes},
			records: records{Epoch: p.epoch, Begin: p.begin, End: p.begin + n, Piece: f.owe(p.source, p.begin, p.begin+n)},
		}, nil)
		if f.queue[at].begin += n; f.queue[at].begin == p.end {
			f.queue = append(f.queue[:at], f.queue[at+1:]...)
		}
		return true
	}
	return false
}

// drop drops the records of a piece.
func (h *Holder) drop(p piece) {
	h.slots[p.slot].rows -= p.end - p.begin
	h.release(p.slot)
}

// dropIf drops the queued records for which a function returns true.
func (h *Holder) dropIf(f *feedState, unwanted func(piece) bool) {
	f.queue = slices.DeleteFunc(f.queue, func(p piece) bool {
		drop := unwanted(p)
		if drop {
			h.drop(p)
		}
		return drop
	})
}

// dropUnread drops the records of epochs that are over, if the program has left: no program gets them.
func (h *Holder) dropUnread() {
	if f := h.feed; f.left {
		h.dropIf(f, func(p piece) bool { return f.epoch(p.epoch).over != nil })
	}
}

// release makes a filled slot empty if none of its records is needed.
func (h *Holder) release(s int) {
	if h.slots[s].state == filled && h.slots[s].rows == 0 {
		h.slots[s] = slot{}
		h.grantSlots()
		if h.feed != nil {
			h.changed(h.feed.at)
		}
	}
}

// cut removes up to n records of an epoch, which are not handed out, from the end of the queue, and returns them.
func (f *feedState) cut(number int, n int64) []piece {
	var taken []piece
	e := f.epoch(number)
	if f.even && !f.left {
		n = min(n, e.held.GetReceived()+e.held.GetMovedIn()-e.held.GetMovedOut()-max(e.allowed, e.announced))
	}
	for at := len(f.queue) - 1; at >= 0 && n > 0; at-- {
		p := f.queue[at]
		if p.epoch != number {
			continue
		}
		part := p
		part.begin = max(p.begin, p.end-n)
		n -= part.end - part.begin
		taken = append(taken, part)
		if f.queue[at].end = part.begin; f.queue[at].end == p.begin {
			f.queue = append(f.queue[:at], f.queue[at+1:]...)
		}
	}
	return taken
}

// obey executes an order of the driver. Caller holds mu.
func (h *Holder) obey(o *clusterpb.HolderOrder) {
	if b := o.GetBegin(); b != nil {
		h.begin(b)
		return
	}
	f := h.feed
	if f == nil {
		return
	}
	switch o := o.GetOrder().(type) {
	case *clusterpb.HolderOrder_Lease:
		h.lease(o.Lease)
	case *clusterpb.HolderOrder_Allow:
		f.epoch(int(o.Allow.GetEpoch())).allowed = o.Allow.GetRows()
	case *clusterpb.HolderOrder_EpochOver:
		f.epoch(int(o.EpochOver.GetEpoch())).over = o.EpochOver
		h.dropUnread()
	case *clusterpb.HolderOrder_Over:
		if f.fed = o.Over; !o.Over.GetMore() {
			f.over = o.Over
		}
		for _, p := range h.producers {
			p.stop(o.Over.GetReason())
		}
	}
	h.handOut()
}

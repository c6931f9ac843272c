package feed

import (
	"encoding/json"
	"maps"
)

// keptForResults is the number of slots that producers leave free for results. A program that waits for such a slot
// reads no records, so no slot of records becomes free in the meantime.
const keptForResults = 2

// answerer is the program's connection for results. Its fields are guarded by the holder's mu.
type answerer struct {
	peer    *peer
	wants   int // number of slots that it waits for
	granted map[int]bool
}

// origin is the source of a batch: its producer, and the producer's number for it.
type origin struct{ producer, number int64 }

// owing has the results that the program owes, in inference.
type owing struct {
	answers bool // results are wanted
	fresh   bool // a piece was handed out after the last flush
	pieces  int64
	owed    map[int64]*debt // by the number of the piece
}

// debt is a piece that was handed out and lacks the results of records [begin, end).
type debt struct {
	source     origin
	begin, end int64
}

func newOwing(plan string) owing {
	var p struct {
		Mode string `json:"mode"`
	}
	_ = json.Unmarshal([]byte(plan), &p) // a plan of another form has no inference
	return owing{answers: p.Mode == "inference", owed: map[int64]*debt{}}
}

// owe records that a piece is handed out, and returns the piece's number; 0 if no results are wanted.
func (o *owing) owe(source origin, begin, end int64) int64 {
	if !o.answers {
		return 0
	}
	o.pieces++
	o.fresh = true
	o.owed[o.pieces] = &debt{source: source, begin: begin, end: end}
	return o.pieces
}

// answer serves the program's connection for results until it ends.
func (h *Holder) answer(peer *peer, lines lineReader) {
	h.mu.Lock()
	if h.closed || h.answerer != nil {
		h.mu.Unlock()
		peer.send(message{Op: "stop", Reason: "another connection of this task gives results"}, nil)
		return
	}
	a := &answerer{peer: peer, granted: map[int]bool{}}
	h.answerer = a
	where, file := h.segmentFile()
	peer.send(message{Op: "segment", place: where}, file)
	h.mu.Unlock()
	for {
		m, err := lines.read()
		if err != nil || !h.fromAnswerer(a, m) {
			break
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answerer = nil
	for s := range a.granted {
		h.slots[s] = slot{}
	}
	h.grantSlots()
}

// fromAnswerer obeys a message of the program. It returns false if the program breaks the protocol.
func (h *Holder) fromAnswerer(a *answerer, m message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m.Op {
	case "slot":
		a.wants++
		h.grantSlots()
		return true
	case "put":
		if !a.granted[m.Slot] || m.Bytes < 1 || m.Bytes > h.seg.Layout().SlotSize(m.Slot) {
			return false
		}
		delete(a.granted, m.Slot)
		return h.giveResults(m)
	}
	return false
}

// giveResults sends a producer the place of results of its records. Results without a producer are dropped. It
// returns false if the results are of other records than those that the program owes.
func (h *Holder) giveResults(m message) bool {
	var d *debt
	if h.feed != nil && h.feed.id == m.Feed {
		d = h.feed.owed[m.Piece]
	}
	if d == nil { // its producer, or its feed, has ended
		h.slots[m.Slot] = slot{}
		h.grantSlots()
		return true
	}
	if m.Begin != d.begin || m.End <= m.Begin || m.End > d.end {
		h.slots[m.Slot] = slot{}
		return false
	}
	if d.begin = m.End; d.begin == d.end {
		delete(h.feed.owed, m.Piece)
	}
	h.slots[m.Slot] = slot{state: returned, bytes: m.Bytes, to: d.source.producer}
	h.producers[d.source.producer].peer.send(message{
		Op: "results", place: place{Slot: m.Slot, Bytes: m.Bytes},
		records: records{Piece: d.source.number, Begin: m.Begin, End: m.End},
	}, nil)
	return true
}

// grantForResults grants the program a free slot for results, if it waits for one and has less than its share. It
// reports whether it did. Caller holds mu.
func (h *Holder) grantForResults(free, at, returned int) bool {
	a := h.answerer
	if a == nil || a.wants < 1 || free < 1 || returned+len(a.granted) >= keptForResults {
		return false
	}
	a.wants--
	a.granted[at] = true
	h.slots[at].state = granted
	a.peer.send(message{Op: "slot", place: place{Slot: at}}, nil)
	return true
}

// kept returns the number of free slots that are kept for results.
func (h *Holder) kept(returned int) int {
	if h.feed == nil || !h.feed.answers {
		return 0
	}
	if h.answerer != nil {
		returned += len(h.answerer.granted)
	}
	return max(0, keptForResults-returned)
}

// taken frees a slot after its producer has read the results in it. It returns false if the slot had none for the
// producer.
func (h *Holder) taken(p *producer, s int) bool {
	if !h.hasResults(p, s) {
		return false
	}
	h.slots[s] = slot{}
	h.grantSlots()
	return true
}

// hasResults reports whether a slot has results for a producer.
func (h *Holder) hasResults(p *producer, s int) bool {
	return s >= 0 && s < len(h.slots) && h.slots[s].state == returned && h.slots[s].to == p.id
}

// unanswered removes the results that a producer waited for, after the producer has ended. It drops the producer's
// records that the program does not have yet, and results of the others when they come.
func (h *Holder) unanswered(f *feedState, p *producer) {
	if !f.answers {
		return
	}
	maps.DeleteFunc(f.owed, func(_ int64, d *debt) bool { return d.source.producer == p.id })
	for s := range h.slots {
		if h.slots[s].state == returned && h.slots[s].to == p.id {
			h.slots[s] = slot{}
		}
	}
	if f != h.feed {
		return // its queue was dropped at the beginning of the next feed
	}
	h.dropIf(f, func(q piece) bool {
		unanswered := q.source.producer == p.id
		if unanswered {
			f.epoch(q.epoch).held.Received -= q.end - q.begin
			h.changed(q.epoch)
		}
		return unanswered
	})
}

// flush informs the program that no record comes before it gives results. That is so when every producer has put all
// its records and waits. The program is informed once, as the answer to "next". flush reports whether it did that.
func (h *Holder) flush(f *feedState, c *consumer) bool {
	if !f.answers || !f.fresh || len(f.owed) == 0 {
		return false
	}
	for _, p := range h.producers {
		if p.leased && !p.ended && !p.done {
			return false
		}
	}
	f.fresh = false
	c.wants--
	c.peer.send(message{Op: "flush", Feed: f.id}, nil)
	return true
}

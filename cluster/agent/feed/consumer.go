package feed

import (
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// consumer is the task's program. Its fields are guarded by the holder's mu.
type consumer struct {
	peer  *peer
	wants int // number of batches that it waits for
}

// consume serves the program until it ends its connection.
func (h *Holder) consume(peer *peer, lines lineReader) {
	h.mu.Lock()
	if h.closed || h.consumer != nil {
		reason := "another connection of this task reads the feed"
		if h.closed {
			reason = h.ended
		}
		h.mu.Unlock()
		peer.send(message{Op: "over", Reason: reason}, nil)
		return
	}
	c := &consumer{peer: peer}
	h.consumer, h.departed = c, false
	where, file := h.segmentFile()
	peer.send(message{Op: "segment", place: where}, file)
	if h.feed != nil {
		peer.send(message{Op: "feed", Feed: h.feed.id, Plan: h.feed.plan}, nil)
	}
	h.mu.Unlock()
	for {
		m, err := lines.read()
		if err != nil || !h.fromConsumer(c, m) {
			break
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.consumer = nil
	h.depart()
	// The process of the program has exited, or reads no more: its records are free.
	for s := range h.slots {
		if h.slots[s].state == filled {
			h.slots[s].rows -= h.slots[s].lent
			h.slots[s].lent = 0
			h.release(s)
		}
	}
}

// fromConsumer obeys a message of the program. It returns false if the program breaks the protocol.
func (h *Holder) fromConsumer(c *consumer, m message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feed
	switch m.Op {
	case "free":
		if m.Slot < 0 || m.Slot >= len(h.slots) || m.Rows < 1 || m.Rows > h.slots[m.Slot].lent {
			return false
		}
		h.slots[m.Slot].lent -= m.Rows
		h.slots[m.Slot].rows -= m.Rows
		h.release(m.Slot)
	case "next":
		c.wants++
		h.handOut()
	case "read", "used", "leave":
		if f == nil || f.id != m.Feed {
			return true // about an earlier feed
		}
		h.fromReader(f, m)
	default:
		return false
	}
	return true
}

// fromReader obeys a message of the program about the present feed.
func (h *Holder) fromReader(f *feedState, m message) {
	switch m.Op {
	case "read":
		f.even, f.batch, f.begun = m.Even, m.Batch, true
		h.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Reading{Reading: &clusterpb.FeedReading{
			Feed: f.id, Even: m.Even,
		}}})
		h.handOut()
	case "used":
		e := f.epoch(m.Epoch)
		e.held.Used = max(e.held.GetUsed(), m.Rows)
		h.changed(m.Epoch)
	case "leave":
		if m.Rows > 0 && !f.left {
			e := f.epoch(m.Epoch)
			e.held.Unread += min(m.Rows, e.held.GetUsed())
			h.changed(m.Epoch)
		}
		h.leave()
	}
}

// ProgramEnded informs the holder that the task's program has exited, whether or not it has read the feed.
func (h *Holder) ProgramEnded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.consumer == nil { // otherwise the end of its connection reports that, after its last message
		h.depart()
	}
}

// depart records that the program has ended: it reads neither this feed nor another one. Caller holds mu.
func (h *Holder) depart() {
	h.departed = true
	h.leave()
	h.freeUnused()
}

// leave records that the program reads no more of this feed; the remaining records go to other holders. Records that
// were handed out count as used, also if the program has not read them from the socket, because no other program gets
// them. They are reported as unread. Caller holds mu.
func (h *Holder) leave() {
	f := h.feed
	if f == nil || f.left {
		return
	}
	f.left = true
	for number, e := range f.all {
		if used := e.held.GetUsed(); used < e.announced {
			e.held.Used, e.held.Unread = e.announced, e.held.GetUnread()+e.announced-used
			h.changed(number)
		}
	}
	if c := h.consumer; c != nil && c.wants > 0 { // a thread of it waits
		c.wants = 0
		c.peer.send(message{Op: "over", Feed: f.id}, nil)
	}
	h.dropUnread()
	h.flushHeld()
	h.driver.send(
		&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Left{Left: &clusterpb.HolderLeft{Feed: f.id}}})
}

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
func (i *Intake) consume(peer *peer, lines lineReader) {
	i.mu.Lock()
	if i.closed || i.consumer != nil {
		reason := "another connection of this task reads the feed"
		if i.closed {
			reason = i.ended
		}
		i.mu.Unlock()
		peer.send(message{Op: "over", Reason: reason}, nil)
		return
	}
	c := &consumer{peer: peer}
	i.consumer, i.departed = c, false
	where, file := i.segmentFile()
	peer.send(message{Op: "segment", place: where}, file)
	if i.feed != nil {
		peer.send(message{Op: "feed", Feed: i.feed.id, Plan: i.feed.plan}, nil)
	}
	i.mu.Unlock()
	for {
		m, err := lines.read()
		if err != nil || !i.fromConsumer(c, m) {
			break
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.consumer = nil
	i.depart()
	// The process of the program has exited, or reads no more: its records are free.
	for s := range i.slots {
		if i.slots[s].state == filled {
			i.slots[s].rows -= i.slots[s].lent
			i.slots[s].lent = 0
			i.release(s)
		}
	}
}

// fromConsumer obeys a message of the program. It returns false if the program breaks the protocol.
func (i *Intake) fromConsumer(c *consumer, m message) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	f := i.feed
	switch m.Op {
	case "free":
		if m.Slot < 0 || m.Slot >= len(i.slots) || m.Rows < 1 || m.Rows > i.slots[m.Slot].lent {
			return false
		}
		i.slots[m.Slot].lent -= m.Rows
		i.slots[m.Slot].rows -= m.Rows
		i.release(m.Slot)
	case "next":
		c.wants++
		i.handOut()
	case "read", "used", "leave":
		if f == nil || f.id != m.Feed {
			return true // about an earlier feed
		}
		i.fromReader(f, m)
	default:
		return false
	}
	return true
}

// fromReader obeys a message of the program about the present feed.
func (i *Intake) fromReader(f *reading, m message) {
	switch m.Op {
	case "read":
		f.even, f.batch, f.begun = m.Even, m.Batch, true
		i.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Reading{Reading: &clusterpb.FeedReading{
			Feed: f.id, Even: m.Even,
		}}})
		i.handOut()
	case "used":
		e := f.epoch(m.Epoch)
		e.held.Used = max(e.held.GetUsed(), m.Rows)
		i.changed(m.Epoch)
	case "leave":
		if m.Rows > 0 && !f.left {
			e := f.epoch(m.Epoch)
			e.held.Unread += min(m.Rows, e.held.GetUsed())
			i.changed(m.Epoch)
		}
		i.leave()
	}
}

// ProgramEnded informs the holder that the task's program has exited, whether or not it has read the feed.
func (i *Intake) ProgramEnded() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.consumer == nil { // otherwise the end of its connection reports that, after its last message
		i.depart()
	}
}

// depart records that the program has ended: it reads neither this feed nor another one. Caller holds mu.
func (i *Intake) depart() {
	i.departed = true
	i.leave()
	i.freeUnused()
}

// leave records that the program reads no more of this feed; the remaining records go to other holders. Records that
// were handed out count as used, also if the program has not read them from the socket, because no other program gets
// them. They are reported as unread. Caller holds mu.
func (i *Intake) leave() {
	f := i.feed
	if f == nil || f.left {
		return
	}
	f.left = true
	for number, e := range f.all {
		if used := e.held.GetUsed(); used < e.announced {
			e.held.Used, e.held.Unread = e.announced, e.held.GetUnread()+e.announced-used
			i.changed(number)
		}
	}
	if c := i.consumer; c != nil && c.wants > 0 { // a thread of it waits
		c.wants = 0
		c.peer.send(message{Op: "over", Feed: f.id}, nil)
	}
	i.dropUnread()
	i.flushHeld()
	i.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Left{Left: &clusterpb.HolderLeft{Feed: f.id}}})
}

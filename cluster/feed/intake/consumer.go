package intake

import (
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// consumer is the task's program. Its fields are guarded by the holder's mu.
type consumer struct {
	peer  *peer
	wants int // batches that it waits for
}

// consume serves the program until it ends its connection.
func (i *Intake) consume(peer *peer, lines lineReader) {
	i.mu.Lock()
	if i.closed || i.consumer != nil {
		i.mu.Unlock()
		peer.send(message{Op: "over", Reason: "another connection of this task reads the feed"}, nil)
		return
	}
	c := &consumer{peer: peer}
	i.consumer = c
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
	i.leave()
	for s := range i.slots { // what it read is free: the process is gone, or reads no more
		if i.slots[s].state == filled {
			i.slots[s].rows -= i.slots[s].lent
			i.slots[s].lent = 0
			i.release(s)
		}
	}
}

// fromConsumer obeys the program; it returns false if the program does not keep to the protocol.
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
	case "read", "used", "leave", "result":
		if f == nil || f.id != m.Feed {
			return true // of the feed before
		}
		i.fromReader(f, m)
	default:
		return false
	}
	return true
}

// fromReader takes what the program says of the present feed.
func (i *Intake) fromReader(f *reading, m message) {
	switch m.Op {
	case "read":
		f.even, f.begun = m.Even, true
		i.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Reading{Reading: &clusterpb.FeedReading{
			Feed: f.id, Even: m.Even, Batch: m.Batch,
		}}})
		i.handOut()
	case "used":
		f.epoch(m.Epoch).held.Used = m.Rows
		i.changed(m.Epoch)
	case "leave":
		i.leave()
	case "result":
		i.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Result{Result: &clusterpb.FeedResult{
			Feed: f.id, Json: m.JSON, Rows: m.Rows,
		}}})
	}
}

// leave notes that the program reads no more: what is here goes to others.
func (i *Intake) leave() {
	f := i.feed
	if f == nil || f.left {
		return
	}
	f.left = true
	i.flushHeld()
	i.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Left{Left: &clusterpb.HolderLeft{Feed: f.id}}})
}

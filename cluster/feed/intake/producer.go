package intake

import (
	"fmt"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// producer is one that delivers a partition. Its fields are guarded by the holder's mu.
type producer struct {
	id      int64
	peer    *peer
	epoch   int
	leased  bool
	rows    int64 // of the partition that were delivered, those of earlier attempts included
	wants   int   // slots that it waits for
	granted map[int]bool
	done    bool
}

// produce serves a producer until it ends.
func (i *Intake) produce(peer *peer, lines lineReader, first message) {
	i.mu.Lock()
	f := i.feed
	switch {
	case i.closed || f == nil || f.id != first.Feed || !equalKeys(first.Key, f.key):
		i.mu.Unlock()
		peer.send(message{Op: "stop", Reason: fmt.Sprintf("%s takes no records of this feed", i.cfg.Task)}, nil)
		return
	case f.over != nil:
		reason := f.over.GetReason()
		i.mu.Unlock()
		peer.send(message{Op: "stop", Reason: reason}, nil)
		return
	}
	i.last++
	p := &producer{id: i.last, peer: peer, epoch: first.Epoch, granted: map[int]bool{}}
	i.producers[p.id] = p
	i.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseWanted{LeaseWanted: &clusterpb.LeaseWanted{
		Feed: f.id, Producer: p.id, Epoch: int32(p.epoch), Partition: first.Partition, Attempt: first.Attempt, Digest: first.Digest,
	}}})
	i.mu.Unlock()
	for {
		m, err := lines.read()
		if err != nil || !i.fromProducer(f, p, m) {
			break
		}
	}
	i.producerGone(f, p)
}

// lease gives a producer the driver's answer.
func (i *Intake) lease(l *clusterpb.FeedLease) {
	p := i.producers[l.GetProducer()]
	if p == nil {
		return
	}
	p.leased, p.rows = !l.GetComplete(), l.GetSkip()
	p.done = l.GetComplete()
	where, file := i.segmentFile()
	p.peer.send(message{Op: "lease", place: where, lease: lease{Skip: l.GetSkip(), Complete: l.GetComplete()}}, file)
}

// fromProducer obeys a producer; it returns false if the producer has ended or does not keep to the protocol.
func (i *Intake) fromProducer(f *reading, p *producer, m message) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || !p.leased {
		return false
	}
	switch m.Op {
	case "slot":
		p.wants++
		i.grantSlots()
	case "put":
		if !p.granted[m.Slot] || m.Rows < 1 || m.Bytes < 1 || m.Bytes > i.seg.SlotSize() {
			p.peer.send(message{Op: "stop", Reason: "a producer wrote to a slot that it does not have"}, nil)
			return false
		}
		delete(p.granted, m.Slot)
		p.rows += m.Rows
		i.slots[m.Slot] = slot{state: filled, bytes: m.Bytes, rows: m.Rows}
		e := f.epoch(p.epoch)
		e.held.Received += m.Rows
		f.queue = append(f.queue, piece{slot: m.Slot, epoch: p.epoch, end: m.Rows})
		i.changed(p.epoch)
		i.handOut()
	case "done":
		p.done = true
		p.peer.send(message{Op: "done", records: records{Rows: p.rows}}, nil)
		return false
	default:
		return false
	}
	return true
}

// producerGone takes back what a producer had and reports how much it delivered.
func (i *Intake) producerGone(f *reading, p *producer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.producers, p.id)
	for s := range p.granted {
		i.slots[s] = slot{}
	}
	i.flushHeld()
	i.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseEnded{LeaseEnded: &clusterpb.LeaseEnded{
		Feed: f.id, Producer: p.id, Rows: p.rows, Complete: p.done,
	}}})
	i.grantSlots()
}

// grantSlots gives free slots to producers that wait for one, in turn.
func (i *Intake) grantSlots() {
	defer i.freed.Broadcast()
	for {
		free, at := 0, 0
		for s := range i.slots {
			if i.slots[s].state == empty {
				free, at = free+1, s
			}
		}
		if i.receiving {
			free--
		}
		p := i.nextWaiting()
		if free < 1 || p == nil {
			return
		}
		p.wants--
		p.granted[at] = true
		i.slots[at].state = granted
		p.peer.send(message{Op: "slot", place: place{Slot: at}}, nil)
	}
}

// nextWaiting returns the producer that has fewest slots of those that wait; nil if none waits.
func (i *Intake) nextWaiting() *producer {
	var next *producer
	for _, p := range i.producers {
		if p.wants > 0 && (next == nil || len(p.granted) < len(next.granted) || len(p.granted) == len(next.granted) && p.id < next.id) {
			next = p
		}
	}
	return next
}

package feed

import (
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// producer is a producer that delivers a partition. Its fields are guarded by the holder's mu.
type producer struct {
	id      int64
	peer    *peer
	epoch   int
	leased  bool
	rows    int64  // records of the partition that were delivered, also by earlier attempts
	digest  string // digest of these records, sent with the last ones
	wants   int    // number of slots that it waits for
	granted map[int]bool
	done    bool
	ended   bool // it has put everything, and waits for results
	carried bool // it is on another host: batches follow the lines
}

// produce serves a producer until it ends.
func (h *Holder) produce(peer *peer, lines lineReader, first message, carried bool) {
	h.mu.Lock()
	f := h.await(first.Feed)
	switch {
	case h.closed || f == nil || f.id != first.Feed || !equalKeys(first.Key, f.key):
		h.mu.Unlock()
		peer.send(message{Op: "stop", Reason: fmt.Sprintf("%s takes no records of this feed", h.cfg.Task)}, nil)
		return
	case f.fed != nil:
		reason := f.fed.GetReason()
		h.mu.Unlock()
		peer.send(message{Op: "stop", Reason: reason}, nil)
		return
	}
	h.last++
	p := &producer{id: h.last, peer: peer, epoch: first.Epoch, granted: map[int]bool{}, carried: carried}
	h.producers[p.id] = p
	first.wanted.Producer = p.id
	h.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseWanted{LeaseWanted: first.wanted}})
	h.mu.Unlock()
	for {
		m, err := lines.read()
		if err == nil && p.carried && m.Op == "put" {
			err = h.fill(p, m, lines)
		}
		if err != nil || !h.fromProducer(f, p, m) {
			break
		}
	}
	h.awaitLastWrites(f, p, lines)
	h.producerGone(f, p)
}

// stop ends a producer: the holder takes no more records from it. Caller holds mu.
func (p *producer) stop(reason string) {
	p.wants = 0
	p.peer.send(message{Op: "stop", Reason: reason}, nil)
	p.peer.hangUp()
}

// awaitLastWrites waits until a producer of an earlier feed writes no more. The producer reads "stop" only when it
// needs another slot. Until then it may write to the slot that it has, so the slot must not be granted to another
// producer. Its batches are dropped. The wait ends with the producer's process, which Spark kills two seconds after
// the cancellation of its job (spark.python.task.killTimeout), or with the holder.
func (h *Holder) awaitLastWrites(f *feedState, p *producer, lines lineReader) {
	for h.mayWrite(f, p) {
		m, err := lines.read()
		if err != nil {
			return
		}
		h.mu.Lock()
		h.giveUp(p, m)
		h.mu.Unlock()
	}
}

// mayWrite reports whether a producer of an earlier feed may still write to slots. A producer on another host writes
// to none. A producer of the present feed has ended or has broken the protocol, and loses its slots at once.
func (h *Holder) mayWrite(f *feedState, p *producer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.feed != f && !h.closed && !p.carried && len(p.granted) > 0
}

// giveUp frees the slot into which a producer of an earlier feed has put a batch. Caller holds mu.
func (h *Holder) giveUp(p *producer, m message) {
	if m.Op == "put" && p.granted[m.Slot] {
		delete(p.granted, m.Slot)
		h.slots[m.Slot] = slot{}
		h.grantSlots()
	}
}

// beginTimeout is the time that a producer waits for its feed to begin here. The driver informs its client and the
// holders at the same time, so a producer may come before the order.
const beginTimeout = 3 * time.Second

// await waits for a short time for a feed to begin, and returns the present feed. Caller holds mu.
func (h *Holder) await(feed int64) *feedState {
	deadline := time.Now().Add(beginTimeout)
	stop := time.AfterFunc(beginTimeout, func() {
		h.mu.Lock() // otherwise the waiter might check the time before its end, and wait after it
		defer h.mu.Unlock()
		h.freed.Broadcast()
	})
	defer stop.Stop()
	for !h.closed && (h.feed == nil || h.feed.id < feed) && time.Now().Before(deadline) {
		h.freed.Wait()
	}
	return h.feed
}

// lease sends a producer the driver's answer.
func (h *Holder) lease(l *clusterpb.FeedLease) {
	p := h.producers[l.GetProducer()]
	if p == nil {
		return
	}
	if l.GetRefused() != "" {
		p.stop(l.GetRefused())
		return
	}
	p.leased, p.rows, p.digest = !l.GetComplete(), l.GetSkip(), l.GetDigest()
	p.done = l.GetComplete()
	where, file := h.segmentFile()
	if p.carried {
		file = nil
	}
	p.peer.send(leaseLine{"lease", where, l}, file)
}

// fromProducer obeys a message of a producer. It returns false if the producer has ended or breaks the protocol.
func (h *Holder) fromProducer(f *feedState, p *producer, m message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || !p.leased {
		return false
	}
	if h.feed != f {
		h.giveUp(p, m)
		return false
	}
	switch m.Op {
	case "slot":
		p.wants++
		h.grantSlots()
	case "put":
		if !p.granted[m.Slot] || m.Rows < 1 || m.Bytes < 1 || m.Bytes > h.seg.Layout().SlotSize(m.Slot) {
			p.peer.send(message{Op: "stop", Reason: "a producer wrote to a slot that it does not have"}, nil)
			return false
		}
		delete(p.granted, m.Slot)
		p.rows, p.digest = p.rows+m.Rows, m.Digest
		h.slots[m.Slot] = slot{state: filled, bytes: m.Bytes, rows: m.Rows}
		e := f.epoch(p.epoch)
		e.held.Received += m.Rows
		f.queue = append(f.queue, piece{slot: m.Slot, epoch: p.epoch, end: m.Rows, source: origin{p.id, m.Piece}})
		h.changed(p.epoch)
		h.dropUnread()
		h.handOut()
	case "end":
		p.ended, p.wants = true, 0
		for s := range p.granted { // it puts no more batches; others may wait for its slots
			h.slots[s] = slot{}
		}
		clear(p.granted)
		h.grantSlots()
		h.handOut() // the program may wait for records that do not come
	case "fetch":
		return p.carried && h.bring(p, m.Slot)
	case "taken":
		if !h.taken(p, m.Slot) {
			return false
		}
	case "done":
		p.done = true
		p.peer.send(message{Op: "done", records: records{Rows: p.rows}}, nil)
		return false
	default:
		return false
	}
	return true
}

// producerGone frees the slots of a producer that has ended, and reports the number of records that it delivered.
func (h *Holder) producerGone(f *feedState, p *producer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.producers, p.id)
	for s := range p.granted {
		h.slots[s] = slot{}
	}
	h.unanswered(f, p)
	h.flushHeld()
	h.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseEnded{LeaseEnded: &clusterpb.LeaseEnded{
		Feed: f.id, Producer: p.id, Rows: p.rows, Complete: p.done, Digest: p.digest,
	}}})
	h.grantSlots()
	h.handOut()
}

// grantSlots grants free slots to the program for results, then to waiting producers in turn. Caller holds mu.
func (h *Holder) grantSlots() {
	defer h.freed.Broadcast()
	for {
		free, at, results := 0, 0, 0
		for s := range h.slots {
			if h.slots[s].state == empty {
				free, at = free+1, s
			}
			if h.slots[s].state == returned {
				results++
			}
		}
		if h.receiving {
			free--
		}
		if h.grantForResults(free, at, results) {
			continue
		}
		p := h.nextWaiting()
		if free -= h.kept(results); free < 1 || p == nil {
			return
		}
		p.wants--
		p.granted[at] = true
		h.slots[at].state = granted
		p.peer.send(message{Op: "slot", place: place{Slot: at}, records: records{Batch: h.feed.batch}}, nil)
	}
}

// nextWaiting returns the waiting producer with the fewest slots; nil if none waits.
func (h *Holder) nextWaiting() *producer {
	var next *producer
	for _, p := range h.producers {
		if p.wants > 0 &&
			(next == nil || len(p.granted) < len(next.granted) || len(p.granted) == len(next.granted) && p.id < next.id) {
			next = p
		}
	}
	return next
}

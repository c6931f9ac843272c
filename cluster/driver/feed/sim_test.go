package feed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// world simulates holders, producers and programs around a Feed.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	feed    *Feed
	even    bool
	epochs  int32
	parts   []int // records of each partition
	holders map[string]*simHolder
	names   []string
	running []*simProducer
	waiting []*simProducer // not yet started
	next    int64
	fedTo   int32 // epochs that were reported as fed
	done    map[string]bool
	fault   string
	events  []event
	got     map[string]int // records handed to programs, by epoch, partition and number
	faults  int            // disturbances that are still to come
}

type simHolder struct {
	id      string
	free    int // slots for producers; one more is for moves
	queue   []simPiece
	held    map[int32]*clusterpb.FeedHeld
	allowed map[int32]int64
	over    map[int32]*clusterpb.FeedEpochOver
	reads   bool
	epoch   int32 // that the program reads
	left    bool
	gone    bool
	outbox  []simPiece // of a move, on its way
	to      string
	inbox   []simPiece
}

type simPiece struct {
	epoch   int32
	records []string
	slot    bool // takes a slot
}

type simProducer struct {
	epoch   int32
	part    int
	attempt int64
	holder  string
	id      int64
	lease   bool
	sent    int
}

const pieceRows = 4

func newWorld(t *testing.T, seed uint64) *world {
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := &world{
		t: t, rnd: rnd, even: rnd.IntN(2) == 0, epochs: 1 + rnd.Int32N(3), holders: map[string]*simHolder{},
		done: map[string]bool{}, got: map[string]int{},
	}
	workers := 1 + rnd.IntN(4)
	for i := range workers {
		w.names = append(w.names, fmt.Sprintf("worker:%d", i))
	}
	tasks := slices.Clone(w.names)
	policy := Drop
	if w.even {
		policy = []Uneven{Drop, Pad, Spread}[rnd.IntN(3)]
	}
	w.feed = begun(policy, false, tasks...)
	for _, id := range w.names {
		w.holders[id] = &simHolder{
			id: id, free: 2 + rnd.IntN(3), held: map[int32]*clusterpb.FeedHeld{}, allowed: map[int32]int64{},
			over: map[int32]*clusterpb.FeedEpochOver{}, reads: true,
		}
	}
	for range 1 + rnd.IntN(6) {
		w.parts = append(w.parts, rnd.IntN(60)*rnd.IntN(3))
	}
	w.parts = append(w.parts, 10)
	for e := range w.epochs {
		for p := range w.parts {
			w.waiting = append(w.waiting, &simProducer{epoch: e, part: p})
		}
	}
	return w
}

// step applies an event, and what follows from it at once.
func (w *world) step(e event) {
	w.events = append(w.events, e)
	if len(w.events) > 1 {
		return // inside of step
	}
	for n := 0; len(w.events) > 0; n++ {
		w.apply(w.events[0])
		w.events = w.events[1:]
		if n > 1000 {
			w.t.Fatalf("events follow events without end: %+v", w.events)
		}
	}
}

func (w *world) apply(e event) {
	for _, order := range do(w.feed, e) {
		id := order.Holder
		switch o := order.GetOrder().(type) {
		case *clusterpb.HolderOrder_Lease:
			for _, p := range w.running {
				if p.holder == id && p.id == o.Lease.GetProducer() {
					p.lease, p.sent = true, int(o.Lease.GetSkip())
					if o.Lease.GetComplete() {
						p.sent = w.parts[p.part]
					}
				}
			}
		case *clusterpb.HolderOrder_Allow:
			w.holders[id].allowed[o.Allow.GetEpoch()] = o.Allow.GetRows()
		case *clusterpb.HolderOrder_Move:
			w.move(w.holders[id], o.Move)
		case *clusterpb.HolderOrder_EpochOver:
			epoch := o.EpochOver.GetEpoch()
			w.holders[id].over[epoch], w.holders[id].allowed[epoch] = o.EpochOver, o.EpochOver.GetRows()
		case *clusterpb.HolderOrder_Over:
			w.done[id], w.fault = true, o.Over.GetReason()
			w.running = slices.DeleteFunc(w.running, func(p *simProducer) bool { return p.holder == id })
		}
	}
}

func (h *simHolder) at(epoch int32) *clusterpb.FeedHeld {
	if h.held[epoch] == nil {
		h.held[epoch] = &clusterpb.FeedHeld{Epoch: epoch}
	}
	return h.held[epoch]
}

// tell reports what a holder has of an epoch.
func (w *world) tell(h *simHolder, epoch int32) {
	m := proto.CloneOf(h.at(epoch))
	m.Full, m.Starving = h.free == 0, h.reads && !h.left && len(h.readable()) == 0
	w.step(held(h.id, m))
}

// readable returns the records that the program may have now.
func (h *simHolder) readable() []string {
	for _, p := range h.queue {
		if p.epoch == h.epoch {
			n := len(p.records)
			if _, even := h.allowed[-1]; even {
				n = min(n, int(h.allowed[h.epoch]-h.at(h.epoch).Used))
			}
			return p.records[:n]
		}
	}
	return nil
}

// move takes records from the end of the queue, as many as are not handed out.
func (w *world) move(h *simHolder, a *clusterpb.FeedMove) {
	left := int(a.Rows)
	if _, even := h.allowed[-1]; even && !h.left {
		at := h.at(a.Epoch)
		left = min(left, int(at.Received+at.MovedIn-at.MovedOut-h.allowed[a.Epoch]))
	}
	limit := left
	for i := len(h.queue) - 1; i >= 0 && left > 0; i-- {
		p := &h.queue[i]
		if p.epoch != a.Epoch {
			continue
		}
		n := min(left, len(p.records))
		h.outbox = append(h.outbox, simPiece{epoch: a.Epoch, records: p.records[len(p.records)-n:]})
		p.records = p.records[:len(p.records)-n]
		left -= n
		if len(p.records) == 0 {
			if p.slot {
				h.free++
			}
			h.queue = slices.Delete(h.queue, i, i+1)
		}
	}
	sent := int64(limit - left)
	h.at(a.Epoch).MovedOut += sent
	h.to = a.To
	if to := w.holders[a.To]; !to.gone {
		to.inbox = append(to.inbox, h.outbox...)
	}
	h.outbox = nil
	w.tell(h, a.Epoch)
	w.step(moved(h.id, &clusterpb.FeedMoved{Epoch: a.Epoch, To: a.To, Rows: sent}))
}

// act does one random thing; it returns false if that was not possible.
func (w *world) act() bool {
	if w.faults > 0 && w.rnd.IntN(60) == 0 {
		w.faults--
		return w.disturb()
	}
	switch w.rnd.IntN(8) {
	case 0:
		return w.startProducer()
	case 1, 2, 3:
		return w.produce()
	case 4:
		return w.deliver()
	case 5:
		return w.kill()
	default:
		return w.consume()
	}
}

func (w *world) startProducer() bool {
	if len(w.running) == 3 || len(w.waiting) == 0 || w.waiting[0].epoch > w.fedTo {
		return false
	}
	at := w.names[w.rnd.IntN(len(w.names))]
	if w.holders[at].gone || w.done[at] {
		return false
	}
	p := w.waiting[0]
	w.waiting = w.waiting[1:]
	w.next++
	p.id, p.attempt, p.holder, p.lease = w.next, w.next, at, false
	w.running = append(w.running, p)
	w.step(wants(p.holder,
		&clusterpb.LeaseWanted{Producer: p.id, Epoch: p.epoch, Partition: int64(p.part), Attempt: p.attempt, Digest: "d"}))
	return true
}

func (w *world) produce() bool {
	if len(w.running) == 0 {
		return false
	}
	i := w.rnd.IntN(len(w.running))
	p := w.running[i]
	h := w.holders[p.holder]
	switch {
	case !p.lease:
		return false
	case p.sent == w.parts[p.part]:
		w.running = slices.Delete(w.running, i, i+1)
		w.step(ends(p.holder, &clusterpb.LeaseEnded{Producer: p.id, Rows: int64(p.sent), Complete: true}))
		w.checkFed()
		return true
	case h.free == 0:
		w.tell(h, p.epoch)
		return false
	}
	n := min(pieceRows, w.parts[p.part]-p.sent)
	piece := simPiece{epoch: p.epoch, slot: true}
	for j := range n {
		piece.records = append(piece.records, fmt.Sprintf("%d/%d/%d", p.epoch, p.part, p.sent+j))
	}
	p.sent += n
	h.free--
	h.queue = append(h.queue, piece)
	h.at(p.epoch).Received += int64(n)
	w.tell(h, p.epoch)
	return true
}

// checkFed reports an epoch as fed when all of its producers have ended.
func (w *world) checkFed() {
	for _, p := range append(slices.Clone(w.running), w.waiting...) {
		if p.epoch == w.fedTo {
			return
		}
	}
	rows := 0
	for _, n := range w.parts {
		rows += n
	}
	w.fedTo++
	w.step(fed(&clusterpb.FeedEpochFed{Epoch: w.fedTo - 1, Rows: int64(rows), Last: w.fedTo == w.epochs}))
}

func (w *world) kill() bool {
	if len(w.running) == 0 || w.rnd.IntN(10) > 0 {
		return false
	}
	i := w.rnd.IntN(len(w.running))
	p := w.running[i]
	w.running = slices.Delete(w.running, i, i+1)
	w.step(ends(p.holder, &clusterpb.LeaseEnded{Producer: p.id, Rows: int64(p.sent)}))
	w.waiting = slices.Insert(w.waiting, 0, &simProducer{epoch: p.epoch, part: p.part})
	return true
}

// deliver brings a moved piece to its holder; it waits in the place kept for moves.
func (w *world) deliver() bool {
	for _, id := range w.names {
		h := w.holders[id]
		inQueue := 0
		for _, p := range h.queue {
			if !p.slot {
				inQueue++
			}
		}
		if len(h.inbox) == 0 || inQueue > 0 && h.free == 0 {
			continue
		}
		piece := h.inbox[0]
		h.inbox = h.inbox[1:]
		if piece.slot = inQueue > 0; piece.slot {
			h.free--
		}
		h.queue = append(h.queue, piece)
		h.at(piece.epoch).MovedIn += int64(len(piece.records))
		w.tell(h, piece.epoch)
		return true
	}
	return false
}

func (w *world) consume() bool {
	h := w.holders[w.names[w.rnd.IntN(len(w.names))]]
	if !h.reads || h.left || h.gone {
		return false
	}
	if _, even := h.allowed[-1]; !even && h.at(0).Used == 0 && w.feed.holders[h.id].mode == unknown {
		if w.even {
			h.allowed[-1] = 1
		}
		w.step(reading(h.id, w.even))
	}
	if over, known := h.over[h.epoch]; known && h.at(h.epoch).Used == over.Rows {
		h.queue = slices.DeleteFunc(h.queue, func(p simPiece) bool {
			if p.epoch == h.epoch && p.slot {
				h.free++
			}
			return p.epoch == h.epoch // left out
		})
		h.epoch++
		return true
	}
	records := h.readable()
	if over, known := h.over[h.epoch]; known && w.even {
		records = records[:min(len(records), int(over.Rows-h.at(h.epoch).Used))]
	}
	if len(records) == 0 {
		w.tell(h, h.epoch)
		return false
	}
	n := 1 + w.rnd.IntN(len(records))
	for _, r := range records[:n] {
		w.got[r]++
	}
	for i := range h.queue {
		if p := &h.queue[i]; p.epoch == h.epoch {
			if p.records = p.records[n:]; len(p.records) == 0 {
				if p.slot {
					h.free++
				}
				h.queue = slices.Delete(h.queue, i, i+1)
			}
			break
		}
	}
	h.at(h.epoch).Used += int64(n)
	w.tell(h, h.epoch)
	return true
}

func (w *world) finished() bool {
	for _, id := range w.names {
		if h := w.holders[id]; !w.done[id] || h.reads && !h.left && !h.gone && h.epoch < w.epochs {
			return false
		}
	}
	return true
}

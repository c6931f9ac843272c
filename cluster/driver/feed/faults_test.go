package feed

import (
	"slices"
	"strings"
	"testing"
)

// TestSimulatedFaults: programs leave, holders and sources end, at any time. Every feed ends, no record is read
// twice, and a record that no program got is accounted for, or the feed fails with the cause.
func TestSimulatedFaults(t *testing.T) {
	t.Parallel()
	faults, n := map[string]int{}, seeds(2000)
	for seed := range n {
		w := newWorld(t, seed)
		w.faults = 1 + w.rnd.IntN(3)
		for i := 0; !w.finished() && w.fault == ""; i++ {
			w.act()
			if i > 200_000 {
				t.Fatalf("seed %d: the feed does not end: %+v", seed, w.feed.Progress())
			}
		}
		w.checkFaults(seed)
		switch {
		case w.fault == "" || w.fault == sourceFault:
			faults[w.fault]++
		default:
			faults["holder"]++
		}
		if t.Failed() {
			return
		}
	}
	if few := int(n / 20); faults[""] < 2*few || faults[sourceFault] < few || faults["holder"] < few {
		t.Errorf("the feeds ended in these ways: %v", faults)
	}
}

const sourceFault = "the source is broken"

// disturb has a program leave, a holder end, or the source fail.
func (w *world) disturb() bool {
	h := w.holders[w.names[w.rnd.IntN(len(w.names))]]
	switch n := w.rnd.IntN(10); {
	case h.gone:
		return false
	case n == 0:
		if w.feed.over {
			return false
		}
		w.step(sourceFails(sourceFault))
	case n < 3:
		h.gone, w.done[h.id] = true, true
		h.inbox, h.queue = nil, nil
		w.running = slices.DeleteFunc(w.running, func(p *simProducer) bool {
			if p.holder == h.id { // Spark tries again
				w.waiting = slices.Insert(w.waiting, 0, &simProducer{epoch: p.epoch, part: p.part})
			}
			return p.holder == h.id
		})
		w.step(lost(h.id))
	case h.reads && !h.left:
		h.left = true
		h.queue = slices.DeleteFunc(h.queue, func(p simPiece) bool { // as in the holder: nobody gets these
			_, over := h.over[p.epoch]
			if over && p.slot {
				h.free++
			}
			return over
		})
		w.step(left(h.id))
	}
	return true
}

func (w *world) checkFaults(seed uint64) {
	t := w.t
	for r, n := range w.got {
		if n != 1 {
			t.Errorf("seed %d: record %s was read %d times", seed, r, n)
		}
	}
	if w.fault != "" {
		blamed := w.fault == sourceFault
		for _, h := range w.holders {
			blamed = blamed || h.gone && strings.HasPrefix(w.fault, h.id+" ")
		}
		if !blamed {
			t.Errorf("seed %d: %s", seed, w.fault)
		}
		return
	}
	rows, abandoned, stayed := 0, 0, 0
	for _, n := range w.parts {
		rows += n
	}
	for e := range w.epochs {
		counts := map[int64]bool{}
		for _, h := range w.holders {
			switch {
			case h.reads && !h.left && !h.gone:
				stayed++
				counts[h.at(e).Used+h.over[e].GetRepeat()] = true
			case h.reads:
				if over, known := h.over[e]; known {
					abandoned += int(over.Rows - h.at(e).Used)
				}
			}
		}
		if w.even && w.feed.Uneven != Spread && len(counts) > 1 {
			t.Errorf("seed %d: the workers that stayed have %v records of epoch %d", seed, counts, e)
		}
	}
	p := w.feed.Progress()
	if got := len(w.got) + abandoned + int(p.LeftOut); stayed > 0 && got != rows*int(w.epochs) {
		t.Errorf("seed %d: %d were read, %d abandoned, %d left out: of %d records in %d epochs", seed, len(w.got), abandoned,
			p.LeftOut, rows, w.epochs)
	}
	if !p.Over || p.Remaining != 0 {
		t.Errorf("seed %d: %+v", seed, p)
	}
}

package feed

import "testing"

// TestSimulated: whatever the order of things, every feed ends, no record is handed out twice in an epoch, and
// none is missing but those that cannot be shared evenly.
func TestSimulated(t *testing.T) {
	t.Parallel()
	for seed := range seeds(1500) {
		w := newWorld(t, seed)
		for i := 0; !w.finished() && w.fault == ""; i++ {
			w.act()
			if i > 200_000 {
				t.Fatalf("seed %d: the feed does not end: %+v", seed, w.feed.Progress())
			}
		}
		w.check(seed)
		if t.Failed() {
			return
		}
	}
}

// seeds returns how many feeds a test simulates, of so many: fewer in short mode, which has the race detector.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return n / 5
	}
	return n
}

func (w *world) check(seed uint64) {
	t := w.t
	workers := len(w.feed.readers())
	rows := 0
	for _, n := range w.parts {
		rows += n
	}
	if w.fault != "" {
		t.Errorf("seed %d: %s", seed, w.fault)
	}
	perEpoch := map[byte]int{}
	for r, n := range w.got {
		if n != 1 {
			t.Errorf("seed %d: record %s was read %d times", seed, r, n)
		}
		perEpoch[r[0]]++
	}
	left := 0
	if w.even && w.feed.Uneven == Drop {
		left = rows % workers
	}
	for e := range w.epochs {
		if got := perEpoch[byte('0')+byte(e)]; got != rows-left {
			t.Errorf("seed %d: %d of %d records were read in epoch %d, %d workers, even %t", seed, got, rows, e, workers, w.even)
		}
		counts := map[int64]bool{}
		for _, h := range w.holders {
			if h.reads {
				counts[h.at(e).Used+h.over[e].GetRepeat()] = true
			}
		}
		if w.even && w.feed.Uneven != Spread && len(counts) > 1 {
			t.Errorf("seed %d: workers have %v records of epoch %d", seed, counts, e)
		}
	}
	if p := w.feed.Progress(); int(p.LeftOut) != left*int(w.epochs) ||
		int(p.Used) != (rows-left)*int(w.epochs) || !p.Over {
		t.Errorf("seed %d: %+v, left out are %d in %d epochs of %d", seed, p, left, w.epochs, rows)
	}
}

package feed

import (
	"testing"
)

// TestLatePut: a producer of a feed that was given up does not take slots from the next one.
func TestLatePut(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p := b.producer(0)
	for range slots - 1 {
		p.say(`{"op":"slot"}`)
		p.hear("slot")
	}
	b.beginWith(2, "k")
	p.hear("stop")
	p.say(`{"op":"put","slot":0,"bytes":1,"rows":1}`)
	p.over()
	p.close()
	q := b.producerOf(2, "k")
	for range slots - 1 {
		q.say(`{"op":"slot"}`)
		q.hear("slot")
	}
}

// TestLateWrite: a slot to which a producer of an earlier feed may write is not granted to another producer before
// the first one has put a batch into it or has ended.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p := b.producer(0)
	slot := make([]int, slots-1) // one slot is kept for records of other holders
	for n := range slot {
		p.say(`{"op":"slot"}`)
		slot[n] = p.hear("slot").Slot
	}
	p.say(`{"op":"slot"}`) // it waits for one more when the next feed begins, and gets none
	p.quiet()
	b.beginWith(2, "k")
	q := b.producerOf(2, "k")
	for range slot {
		q.say(`{"op":"slot"}`)
	}
	q.quiet()
	for _, s := range slot[:2] {
		p.fill(s, "ab")
		if got := q.hear("slot").Slot; got != s {
			t.Errorf("got slot %d, %d was put", got, s)
		}
		q.quiet()
	}
	p.close()
	for range slot[2:] {
		q.hear("slot")
	}
}

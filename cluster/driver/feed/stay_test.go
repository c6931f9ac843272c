package feed

import (
	"fmt"
	"slices"
	"testing"
)

// TestStay: in inference records stay with the holder that received them, and an attempt that is made again delivers
// its partition from the beginning.
func TestStay(t *testing.T) {
	t.Parallel()
	f := New(Stay, false, []string{"worker:0", "worker:1"})
	var said []string
	do := func(events ...Event) {
		for _, e := range events {
			for _, a := range f.Step(e) {
				said = append(said, fmt.Sprint(a))
			}
		}
	}
	do(
		Reading{Holder: "worker:0"}, Reading{Holder: "worker:1", Even: true}, // which has no meaning here
		LeaseWanted{Holder: "worker:0", Producer: 1, Partition: 0, Digest: "a"},
		Held{Holder: "worker:0", Received: 700, Used: 100, Full: true},
		Held{Holder: "worker:1", Starving: true},
		LeaseEnded{Holder: "worker:0", Producer: 1, Rows: 700},
		LeaseWanted{Holder: "worker:0", Producer: 2, Partition: 0, Attempt: 1, Digest: "b"},
		LeaseEnded{Holder: "worker:0", Producer: 2, Rows: 1000, Complete: true},
		LeaseWanted{Holder: "worker:0", Producer: 3, Partition: 0, Attempt: 2}, // its results were lost behind the last record
		LeaseEnded{Holder: "worker:0", Producer: 3, Rows: 10},                  // it was killed
		EpochFed{Rows: 1000, Last: true},
		HolderLeft{Holder: "worker:0"},
	)
	want := []string{
		"worker:0/1: lease, skip 0", "worker:0/2: lease, skip 0", "worker:0/3: lease, skip 0",
		"worker:0: epoch 0 over at 700 of 700", "worker:1: epoch 0 over at 0 of 700", "worker:0: over", "worker:1: over",
	}
	if !slices.Equal(said, want) {
		t.Errorf("the actions are\n%q, not\n%q", said, want)
	}
}

// TestStayNeedsItsReaders: a program that reads no more leaves records without results.
func TestStayNeedsItsReaders(t *testing.T) {
	t.Parallel()
	for _, e := range []Event{HolderLeft{Holder: "worker:1"}, HolderGone{Holder: "worker:1"}} {
		f := New(Stay, false, []string{"worker:0", "worker:1"})
		f.Step(e)
		if p := f.Progress(); !p.Over || p.Fault == "" {
			t.Errorf("after %#v the feed goes on: %+v", e, p)
		}
	}
}

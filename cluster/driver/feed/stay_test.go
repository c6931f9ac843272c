package feed

import (
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestStay: in inference records stay with the holder that received them, and an attempt that is made again delivers
// its partition from the beginning.
func TestStay(t *testing.T) {
	t.Parallel()
	f := begun(Stay, false, "worker:0", "worker:1")
	var said []string
	for _, e := range []event{
		reading("worker:0", false), reading("worker:1", true), // which has no meaning here
		wants("worker:0", &clusterpb.LeaseWanted{Producer: 1, Partition: 0, Digest: "a"}),
		held("worker:0", &clusterpb.FeedHeld{Received: 700, Used: 100, Full: true}),
		held("worker:1", &clusterpb.FeedHeld{Starving: true}),
		ends("worker:0", &clusterpb.LeaseEnded{Producer: 1, Rows: 700}),
		wants("worker:0", &clusterpb.LeaseWanted{Producer: 2, Partition: 0, Attempt: 1, Digest: "b"}),
		ends("worker:0", &clusterpb.LeaseEnded{Producer: 2, Rows: 1000, Complete: true}),
		// Its results were lost behind the last record.
		wants("worker:0", &clusterpb.LeaseWanted{Producer: 3, Partition: 0, Attempt: 2}),
		ends("worker:0", &clusterpb.LeaseEnded{Producer: 3, Rows: 10}), // it was killed
		fed(&clusterpb.FeedEpochFed{Rows: 1000, Last: true}),
		left("worker:0"),
	} {
		for _, o := range do(f, e) {
			said = append(said, transcribe([]Order{o}, ""))
		}
	}
	want := []string{
		"worker:0/1: lease, skip 0", "worker:0/2: lease, skip 0", "worker:0/3: lease, skip 0",
		"worker:0: epoch 0 over at 700 of 700", "worker:1: epoch 0 over at 0 of 700", "worker:0: over", "worker:1: over",
	}
	if !slices.Equal(said, want) {
		t.Errorf("the orders are\n%q, not\n%q", said, want)
	}
}

// TestStayNeedsItsReaders: a program that reads no more leaves records without results.
func TestStayNeedsItsReaders(t *testing.T) {
	t.Parallel()
	for _, e := range []event{left("worker:1"), lost("worker:1")} {
		f := begun(Stay, false, "worker:0", "worker:1")
		do(f, e)
		if p := f.Progress(); !p.Over || p.Fault == "" {
			t.Errorf("after %s the feed goes on: %+v", e.name, p)
		}
	}
}

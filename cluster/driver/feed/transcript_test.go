package feed

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestLeases: one attempt of a partition delivers at a time, and each begins behind the one before.
func TestLeases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		transcript []said
	}{
		{"a second attempt skips what the first one delivered", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{ended("a", 1, 70, false), ""},
			{wanted("b", 1, "d"), "b/1: lease, skip 70"},
		}},
		{"a third attempt is to have the records of the second one", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{ends("a", &clusterpb.LeaseEnded{Producer: 1, Rows: 70, Digest: "x"}), ""},
			{wanted("b", 1, "d"), "b/1: lease, skip 70 of x"},
			{ends("b", &clusterpb.LeaseEnded{Producer: 1, Rows: 70}), ""}, // it ended while it skipped
			{wanted("b", 2, "d"), "b/2: lease, skip 70 of x"},
			{ends("b", &clusterpb.LeaseEnded{Producer: 2, Rows: 90, Digest: "y"}), ""},
			{wanted("a", 2, "d"), "a/2: lease, skip 90 of y"},
		}},
		{"a speculative attempt waits, and has nothing to do when the first one is complete", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{wanted("b", 7, "d"), ""},
			{ended("a", 1, 100, true), "b/7: complete, 100 records"},
		}},
		{"a speculative attempt goes on where the first one was killed", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{wanted("b", 7, "d"), ""},
			{ended("a", 1, 30, false), "b/7: lease, skip 30"},
		}},
		{"an attempt that is killed while it waits is forgotten", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{wanted("b", 7, "d"), ""},
			{ended("b", 7, 0, false), ""},
			{ended("a", 1, 30, false), ""},
			{wanted("b", 8, "d"), "b/8: lease, skip 30"},
		}},
		{"an attempt after the complete one delivers nothing", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{ended("a", 1, 100, true), ""},
			{wanted("b", 1, "d"), "b/1: complete, 100 records"},
			{ended("b", 1, 0, true), ""},
			{wanted("b", 2, "d"), "b/2: complete, 100 records"},
		}},
		{"an attempt that begins with another record fails the feed", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{ended("a", 1, 70, false), ""},
			{wanted("b", 1, "e"), "a: over: " + recomputed + "; b: over: " + recomputed + "; stop the source: " + recomputed},
		}},
		{"the first record may differ where nothing was delivered", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{ended("a", 1, 0, false), ""},
			{wanted("b", 1, "e"), "b/1: lease, skip 0"},
		}},
		{"partitions and epochs have leases of their own", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{wants("a", &clusterpb.LeaseWanted{Producer: 2, Partition: 1, Digest: "d"}), "a/2: lease, skip 0"},
			{wants("a", &clusterpb.LeaseWanted{Producer: 3, Epoch: 1, Digest: "d"}), "a/3: lease, skip 0"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			play(t, begun(Drop, false, "a", "b"), c.transcript...)
		})
	}
}

const recomputed = "partition 0 was computed again and begins with another record than before: " +
	"its first 70 records were " +
	"delivered already; make the DataFrame's order certain (sort or checkpoint it), then run the cell again"

// TestMixedReading: the failure names a worker of each kind.
func TestMixedReading(t *testing.T) {
	t.Parallel()
	reason := "b reads with as_dataset or fit, a does not: all workers must read the feed in the same way"
	play(
		t, begun(Drop, false, "a", "b"),
		said{reading("a", false), ""},
		said{reading("b", true), "a: over: " + reason + "; b: over: " + reason + "; stop the source: " + reason},
	)
}

// delivered has a feed of one partition at holder a, of which a's program has read some records.
func delivered(t *testing.T, policy Uneven, more, even bool, rows, used int64) *Feed {
	t.Helper()
	f := begun(policy, more, "a", "b")
	do(f, reading("a", even))
	do(f, reading("b", even))
	do(f, wanted("a", 1, "d"))
	do(f, has("a", rows, used))
	do(f, ended("a", 1, rows, true))
	return f
}

// TestHolderLeaves: what a program has not read goes to another one; without one the source stops.
func TestHolderLeaves(t *testing.T) {
	t.Parallel()
	f := delivered(t, Drop, false, false, 100, 40)
	play(
		t, f,
		said{left("a"), "a: move 60 of epoch 0 to b"},
		said{held("a", &clusterpb.FeedHeld{Received: 100, Used: 40, MovedOut: 60}), ""},
		said{moved("a", &clusterpb.FeedMoved{To: "b", Rows: 60}), ""},
		said{fed(&clusterpb.FeedEpochFed{Rows: 100, Last: true}), ""},
		said{held("b", &clusterpb.FeedHeld{MovedIn: 60, Used: 10}), "b: epoch 0 over at 60 of 60; a: over; b: over"},
	)
	if p := f.Progress(); p.Remaining != 50 || p.Used != 50 || p.LeftOut != 0 {
		t.Errorf("%+v", p)
	}
	play(t, f, said{left("b"), ""})
	if p := f.Progress(); p.Remaining != 0 || p.Delivered-p.Used != 50 || p.Fault != "" {
		t.Errorf("after the last program has left: %+v", p)
	}
	play(
		t, delivered(t, Drop, false, false, 100, 40),
		said{left("a"), "a: move 60 of epoch 0 to b"},
		said{left("b"), "a: over; b: over; stop the source: no program reads any more"},
	)
}

// TestMovesNothing: a holder whose records were all reserved for its program moves them when the program has left.
func TestMovesNothing(t *testing.T) {
	t.Parallel()
	f := delivered(t, Drop, false, true, 10, 0)
	play(
		t, f,
		said{held("b", &clusterpb.FeedHeld{Starving: true}), ""},
		said{held("a", &clusterpb.FeedHeld{Received: 10, Full: true}), "a: move 5 of epoch 0 to b"},
		said{moved("a", &clusterpb.FeedMoved{To: "b", Rows: 0}), ""},
		said{left("a"), "a: move 10 of epoch 0 to b"},
	)
}

// TestHolderGone: the feed fails with the holder's name if records are lost for programs that go on.
func TestHolderGone(t *testing.T) {
	t.Parallel()
	failed := func(reason string) string {
		return "a: over: " + reason + "; b: over: " + reason + "; stop the source: " + reason
	}
	for _, c := range []struct {
		name       string
		transcript []said
	}{
		{"a producer delivers to it", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{lost("a"), failed("a has ended while records were delivered to it")},
		}},
		{"a producer waits at it", []said{
			{wanted("b", 1, "d"), "b/1: lease, skip 0"},
			{wanted("a", 1, "d"), ""},
			{lost("a"), ""},
			{ended("b", 1, 5, false), ""},
			{wanted("b", 2, "d"), "b/2: lease, skip 5"},
		}},
		{"it has records", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{has("a", 100, 40), ""},
			{ended("a", 1, 100, true), ""},
			{lost("a"), failed("a has ended with 60 records that no program has read")},
		}},
		{"its program has read everything", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{has("a", 100, 100), ""},
			{ended("a", 1, 100, true), ""},
			{lost("a"), ""},
			{fed(&clusterpb.FeedEpochFed{Rows: 100, Last: true}), "b: epoch 0 over at 0 of 0; a: over; b: over"},
		}},
		{"it sends records", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{has("a", 10, 0), ""},
			{ended("a", 1, 10, true), ""},
			{left("a"), "a: move 10 of epoch 0 to b"},
			{held("a", &clusterpb.FeedHeld{Received: 10, MovedOut: 10}), ""},
			{lost("a"), failed("a has ended while records were delivered to it")},
		}},
		{"records are sent to it", []said{
			{wanted("b", 1, "d"), "b/1: lease, skip 0"},
			{has("b", 10, 0), ""},
			{held("a", &clusterpb.FeedHeld{Starving: true}), ""},
			{held("b", &clusterpb.FeedHeld{Received: 10, Full: true}), "b: move 5 of epoch 0 to a"},
			{lost("a"), failed("a has ended while records were delivered to it")},
		}},
		{"records that were sent to it have not arrived", []said{
			{wanted("b", 1, "d"), "b/1: lease, skip 0"},
			{held("a", &clusterpb.FeedHeld{Starving: true}), ""},
			{held("b", &clusterpb.FeedHeld{Received: 10, Full: true}), "b: move 5 of epoch 0 to a"},
			{held("b", &clusterpb.FeedHeld{Received: 10, MovedOut: 5}), ""},
			{moved("b", &clusterpb.FeedMoved{To: "a", Rows: 5}), ""},
			{lost("a"), failed("a has ended with 5 records that no program has read")},
		}},
		{"nobody reads any more", []said{
			{wanted("a", 1, "d"), "a/1: lease, skip 0"},
			{lost("b"), ""},
			{lost("a"), "a: over; b: over; stop the source: no program reads any more"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := begun(Drop, false, "a", "b")
			play(t, f, append([]said{{reading("a", false), ""}, {reading("b", false), ""}}, c.transcript...)...)
		})
	}
}

// TestGoneBehindTheEnd: a holder that ends with records of a feed that is over fails it only if its program was to
// read them.
func TestGoneBehindTheEnd(t *testing.T) {
	t.Parallel()
	f := delivered(t, Drop, false, false, 100, 40)
	do(f, fed(&clusterpb.FeedEpochFed{Rows: 100, Last: true}))
	reason := "a has ended with 60 records that no program has read"
	play(t, f, said{lost("a"), "a: over: " + reason + "; b: over: " + reason + "; stop the source: " + reason})
	f = delivered(t, Drop, false, false, 100, 40)
	do(f, fed(&clusterpb.FeedEpochFed{Rows: 100, Last: true}))
	play(t, f, said{left("a"), ""}, said{lost("a"), ""})
	if p := f.Progress(); p.Fault != "" || p.Remaining != 0 {
		t.Errorf("%+v", p)
	}
}

// TestSourceFailed: producers are stopped, programs wait for another feed, and what arrives late changes nothing.
func TestSourceFailed(t *testing.T) {
	t.Parallel()
	f := delivered(t, Drop, false, false, 100, 40)
	play(
		t, f,
		said{
			sourceFails("ValueError: x"), "a: over, another follows: ValueError: x; b: over, another follows: ValueError: x",
		},
		said{wanted("b", 3, "d"), ""},
		said{ended("b", 3, 0, false), ""},
		said{has("a", 100, 60), ""},
		said{left("b"), ""},
	)
	if p := f.Progress(); !p.Over || p.Fault != "ValueError: x" || p.Used != 60 {
		t.Errorf("%+v", p)
	}
}

// TestMore: behind the last epoch programs wait for the next feed.
func TestMore(t *testing.T) {
	t.Parallel()
	f := delivered(t, Drop, true, false, 100, 40)
	play(
		t, f,
		said{
			fed(&clusterpb.FeedEpochFed{Rows: 100, Last: true}),
			"a: epoch 0 over at 100 of 100; b: epoch 0 over at 0 of 100; a: over, another follows; b: over, another follows",
		},
		said{wanted("b", 3, "d"), ""}, // a speculative attempt: its holder has stopped it
	)
}

// TestEpochs: the next epoch is not shared out before the one before is over.
func TestEpochs(t *testing.T) {
	t.Parallel()
	f := delivered(t, Drop, false, true, 10, 0)
	play(
		t, f,
		said{wants("b", &clusterpb.LeaseWanted{Producer: 1, Epoch: 1, Digest: "d"}), "b/1: lease, skip 0"},
		said{held("b", &clusterpb.FeedHeld{Epoch: 1, Received: 10}), ""},
		said{ends("b", &clusterpb.LeaseEnded{Producer: 1, Rows: 10, Complete: true}), ""},
		said{fed(&clusterpb.FeedEpochFed{Rows: 10}), "a: move 5 of epoch 0 to b"},
		said{held("a", &clusterpb.FeedHeld{Received: 10, MovedOut: 5}), ""},
		said{moved("a", &clusterpb.FeedMoved{To: "b", Rows: 5}), ""},
		said{
			held("b", &clusterpb.FeedHeld{MovedIn: 5}),
			"a: allow 5 of epoch 0; b: allow 5 of epoch 0; a: epoch 0 over at 5 of 5; b: epoch 0 over at 5 of 5",
		},
		said{fed(&clusterpb.FeedEpochFed{Epoch: 1, Rows: 10, Last: true}), "b: move 5 of epoch 1 to a"},
	)
}

// TestEnds: who gets how many records of an odd number, by policy.
func TestEnds(t *testing.T) {
	t.Parallel()
	few := "1 record cannot be shared by 2 workers that read with as_dataset or fit: each needs one"
	none := "0 records" + strings.TrimPrefix(few, "1 record")
	for _, c := range []struct {
		policy  Uneven
		even    bool
		rows    int64
		want    string
		leftOut int64
	}{
		{Drop, true, 5, "a: epoch 0 over at 2 of 2; b: epoch 0 over at 2 of 2; a: over; b: over", 1},
		{Pad, true, 5, "a: epoch 0 over at 3 of 3; b: epoch 0 over at 2 of 3, repeat 1; a: over; b: over", 0},
		{Spread, true, 5, "a: epoch 0 over at 3 of 3; b: epoch 0 over at 2 of 3; a: over; b: over", 0},
		{Drop, true, 1, "a: over: " + few + "; b: over: " + few + "; stop the source: " + few, 0},
		{Pad, true, 1, "a: over: " + few + "; b: over: " + few + "; stop the source: " + few, 0},
		{Spread, true, 1, "a: over: " + few + "; b: over: " + few + "; stop the source: " + few, 0},
		{Spread, true, 0, "a: over: " + none + "; b: over: " + none + "; stop the source: " + none, 0},
		{Drop, false, 1, "a: epoch 0 over at 1 of 1; b: epoch 0 over at 0 of 1; a: over; b: over", 0},
	} {
		t.Run(fmt.Sprintf("policy %d, even %t, %d records", c.policy, c.even, c.rows), func(t *testing.T) {
			t.Parallel()
			f := delivered(t, c.policy, false, c.even, c.rows, 0)
			orders := do(f, fed(&clusterpb.FeedEpochFed{Rows: c.rows, Last: true}))
			if at := slices.IndexFunc(orders, func(o Order) bool { return o.GetMove() != nil }); at >= 0 {
				rows := orders[at].GetMove().GetRows()
				do(f, held("a", &clusterpb.FeedHeld{Received: c.rows, MovedOut: rows}))
				do(f, moved("a", &clusterpb.FeedMoved{To: "b", Rows: rows}))
				orders = do(f, held("b", &clusterpb.FeedHeld{MovedIn: rows}))
			}
			orders = slices.DeleteFunc(orders, func(o Order) bool { return o.GetAllow() != nil })
			if text := transcribe(orders, f.stopped); text != c.want {
				t.Errorf("got %q\nwant %q", text, c.want)
			}
			if p := f.Progress(); p.LeftOut != c.leftOut {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestLeftOut: what a program that has left had read is not among the records left out.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	f := delivered(t, Drop, false, true, 10, 0)
	do(f, has("a", 10, 3))
	do(f, left("a"))
	do(f, held("a", &clusterpb.FeedHeld{Received: 10, Used: 3, MovedOut: 7}))
	do(f, moved("a", &clusterpb.FeedMoved{To: "b", Rows: 7}))
	do(f, held("b", &clusterpb.FeedHeld{MovedIn: 7}))
	do(f, fed(&clusterpb.FeedEpochFed{Rows: 10, Last: true}))
	if p := f.Progress(); p.LeftOut != 0 || p.Remaining != 7 || !p.Over {
		t.Errorf("%+v", p)
	}
}

// TestNumbersDiffer: a source whose number of records is another than the delivered one is a failure, not a feed
// without end.
func TestNumbersDiffer(t *testing.T) {
	t.Parallel()
	reason := "the source has read 11 records in epoch 1, and 10 were delivered"
	play(
		t, delivered(t, Drop, false, false, 10, 0),
		said{
			fed(&clusterpb.FeedEpochFed{Rows: 11, Last: true}), "a: over: " + reason + "; b: over: " + reason +
				"; stop the source: " + reason,
		},
	)
}

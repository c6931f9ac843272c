package dispatch

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestMoves: records move from one holder to another through the driver, in whole batches.
func TestMoves(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0", "worker:1")
	b.attend("worker:0")
	b.attend("worker:1")
	feed := b.feeds(&clusterpb.FeedRequest{}).opened().GetFeed()
	client := clusterpb.NewFeedsClient(b.conn)
	to, err := client.Receive(t.Context(), &clusterpb.FeedReceiver{Run: 1, Task: "worker:1"})
	if err != nil {
		t.Fatal(err)
	}
	from, err := client.Send(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for _, data := range []string{"ab", "cd", "ef"} {
			_ = from.Send(&clusterpb.FeedPiece{Feed: feed, To: "worker:1", Data: []byte(data)})
			_ = from.Send(&clusterpb.FeedPiece{Feed: feed, To: "worker:1", Data: []byte("."), Offset: 2, End: 2})
		}
	}()
	got := ""
	for range 6 {
		got += string(receive(t, "piece", to.Recv).GetData())
	}
	if got != "ab.cd.ef." {
		t.Errorf("received %q", got)
	}
	if _, err := from.CloseAndRecv(); err != nil {
		t.Error(err)
	}
	if from, err = client.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = from.Send(&clusterpb.FeedPiece{Feed: feed, To: "worker:1", Data: []byte("no end")})
	receive(t, "piece", to.Recv)
	if _, err := from.CloseAndRecv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a batch without its end: %v", err)
	}
	for _, wrong := range []*clusterpb.FeedPiece{
		{Feed: feed, To: "worker:7", End: 1}, {Feed: feed + 1, To: "worker:1", End: 1}, {Feed: feed, End: 1},
	} {
		from, err := client.Send(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = from.Send(wrong)
		if _, err := from.CloseAndRecv(); status.Code(err) != codes.NotFound {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

// TestHolderEnds: a holder that ends in the middle of a batch releases the holder that sends it. The feed fails with
// its name, unless its run ends for a reason of its own.
func TestHolderEnds(t *testing.T) {
	t.Parallel()
	for _, runEnds := range []bool{true, false} {
		b := newBed(t, "worker:0", "worker:1")
		b.d.patience.cause = longest
		if !runEnds {
			b.d.patience.cause = 300 * time.Millisecond
		}
		stays, ends := b.attend("worker:0"), b.attend("worker:1")
		c := b.feeds(&clusterpb.FeedRequest{})
		feed := c.opened().GetFeed()
		ends.began()
		ends.delivers(feed, 10)
		client := clusterpb.NewFeedsClient(b.conn)
		ctx, cancel := context.WithCancel(t.Context())
		to, err := client.Receive(ctx, &clusterpb.FeedReceiver{Run: 1, Task: "worker:1"})
		if err != nil {
			t.Fatal(err)
		}
		from, err := client.Send(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = from.Send(&clusterpb.FeedPiece{Feed: feed, To: "worker:1", Data: []byte("ab")})
		receive(t, "piece", to.Recv)
		cancel()
		ends.end()
		for deadline := time.Now().Add(longest); err == nil && time.Now().Before(deadline); {
			err = from.Send(&clusterpb.FeedPiece{Feed: feed, To: "worker:1", Data: []byte("cd"), Offset: 2})
		}
		if _, err := from.CloseAndRecv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the sender: %v", err)
		}
		reason := "worker:1 has ended with 10 records that no program has read"
		if o := stays.over(); o.GetReason() != reason {
			t.Errorf("%v", o)
		}
		if runEnds {
			b.runs.end("run 1 has ended: it failed")
		}
		switch f := c.over().GetFailure(); {
		case runEnds && f != nil, !runEnds && f.GetSummary() != "the feed failed: "+reason:
			t.Errorf("the run ends %t: %v", runEnds, f)
		}
	}
}

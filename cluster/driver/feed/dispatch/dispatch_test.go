package dispatch

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestBeginWaits: a feed begins when every task waits for it; until then the client receives the names of the missing
// tasks.
func TestBeginWaits(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0", "worker:1")
	c := b.feeds(&clusterpb.FeedRequest{Plan: `{"mode":"train"}`})
	if u := c.hear(); u.GetWaiting() != "waiting for worker:0, worker:1 to call ctx.get_data_feed()" {
		t.Errorf("%v", u)
	}
	first := b.attend("worker:0")
	if u := c.hear(); u.GetWaiting() != "waiting for worker:1 to call ctx.get_data_feed()" {
		t.Errorf("%v", u)
	}
	second := b.attend("worker:1")
	o := c.opened()
	if got := strings.Join(names(o), " "); got != "worker:0 worker:1" || o.GetRun() != 1 ||
		o.GetHolders()[0].GetSocket() != "/worker:0" {
		t.Errorf("%v", o)
	}
	for _, h := range []*fakeHolder{first, second} {
		if begin := h.began(); begin.GetFeed() != o.GetFeed() || begin.GetKey() != o.GetKey() || len(o.GetKey()) != 32 ||
			begin.GetPlan() != `{"mode":"train"}` {
			t.Errorf("%v", begin)
		}
	}
}

// TestNobodyAsks: after a time limit a feed begins with the tasks that wait, or fails if none waits.
func TestNobodyAsks(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0", "worker:1")
	b.d.patience.ask = 50 * time.Millisecond
	f := b.feeds(&clusterpb.FeedRequest{}).over().GetFailure()
	if f.GetSummary() != "no run takes data: none of the tasks of run 1 has called ctx.get_data_feed() within 50ms" ||
		f.GetRemedy() == "" {
		t.Errorf("%v", f)
	}
	b.attend("worker:1")
	b.knows("worker:1") // connecting may take longer than the feed waits
	if got := names(b.feeds(&clusterpb.FeedRequest{}).opened()); len(got) != 1 || got[0] != "worker:1" {
		t.Errorf("%v", got)
	}
}

// TestRunOver: without a run that takes data the feed fails at once.
func TestRunOver(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	b.runs.end("run 1 has ended: it finished")
	if f := b.feeds(&clusterpb.FeedRequest{}).over().GetFailure(); f.GetSummary() !=
		"no run takes data: run 1 has ended: it finished" {
		t.Errorf("%v", f)
	}
	b = newBed(t, "worker:0")
	c := b.feeds(&clusterpb.FeedRequest{})
	c.hear()
	b.runs.end("run 1 is being stopped")
	if f := c.over().GetFailure(); f.GetSummary() != "no run takes data: run 1 is being stopped" {
		t.Errorf("%v", f)
	}
}

// TestRunEnds: the end of a run ends its feed without a failure; the run has the reason.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	h := b.attend("worker:0")
	c := b.feeds(&clusterpb.FeedRequest{})
	c.opened()
	b.runs.end("run 1 is being stopped")
	if u := c.over(); !u.GetStop() || u.GetFailure() != nil {
		t.Errorf("%v", u)
	}
	if o := h.over(); o.GetReason() != "run 1 has ended" {
		t.Errorf("%v", o)
	}
}

// TestAnotherAttempt: another attempt of a partition receives the number of records that were delivered, and their
// digest.
func TestAnotherAttempt(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	h := b.attend("worker:0")
	feed := b.feeds(&clusterpb.FeedRequest{}).opened().GetFeed()
	h.began()
	for n, want := range []*clusterpb.FeedLease{{Producer: 1}, {Producer: 2, Skip: 7, Digest: "x"}} {
		h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseWanted{LeaseWanted: &clusterpb.LeaseWanted{
			Feed: feed, Producer: int64(n) + 1, Digest: "d",
		}}})
		if l := h.hear().GetLease(); l.GetProducer() != want.GetProducer() || l.GetSkip() != want.GetSkip() ||
			l.GetDigest() != want.GetDigest() {
			t.Errorf("%v", l)
		}
		h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseEnded{LeaseEnded: &clusterpb.LeaseEnded{
			Feed: feed, Producer: int64(n) + 1, Rows: 7, Digest: "x",
		}}})
	}
}

// TestOneMode: a run that was trained is not evaluated, because its program has asked for its mode.
func TestOneMode(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	h := b.attend("worker:0")
	c := b.feeds(&clusterpb.FeedRequest{Mode: "train", More: true})
	c.opened()
	h.began()
	c.fails("the DataFrame is broken")
	c.over()
	f := b.feeds(&clusterpb.FeedRequest{Mode: "evaluate"}).over().GetFailure()
	if f.GetSummary() != "run 1 was begun by train: a run has one mode, and takes no evaluate" || f.GetRemedy() == "" {
		t.Errorf("%v", f)
	}
	b.feeds(&clusterpb.FeedRequest{Mode: "train"}).opened()
}

// TestSecondClient: a second feed is refused while one is open.
func TestSecondClient(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	b.attend("worker:0")
	b.feeds(&clusterpb.FeedRequest{}).opened()
	if f := b.feeds(&clusterpb.FeedRequest{}).over().GetFailure(); f.GetSummary() != "run 1 is being fed already" {
		t.Errorf("%v", f)
	}
}

// TestWhole: if another feed follows, a feed is over for its client when all records have been read. Otherwise it is
// over when the run has ended, because until then its tasks may be restarted.
func TestWhole(t *testing.T) {
	t.Parallel()
	for _, more := range []bool{true, false} {
		b := newBed(t, "worker:0")
		h := b.attend("worker:0")
		c := b.feeds(&clusterpb.FeedRequest{More: more, Epochs: 1})
		feed := c.opened().GetFeed()
		h.began()
		h.reads(feed)
		h.delivers(feed, 10)
		h.held(feed, 10, 4)
		c.fed(10)
		if o := h.over(); o.GetReason() != "" || o.GetMore() != more {
			t.Errorf("%v", o)
		}
		c.reads(4)
		h.held(feed, 10, 10)
		if !more {
			if f := b.feeds(&clusterpb.FeedRequest{}).over().GetFailure(); f.GetSummary() != "the feed of run 1 is over" {
				t.Errorf("%v", f)
			}
			c.reads(10)
			b.runs.end("run 1 has ended: it finished")
		}
		u := c.over()
		if u.GetFailure() != nil || u.GetProgress().GetFed() != 10 || u.GetProgress().GetUnread() != 0 {
			t.Errorf("%v", u)
		}
		if more {
			b.feeds(&clusterpb.FeedRequest{}).opened()
			if begin := h.began(); begin.GetFeed() != feed+1 {
				t.Errorf("%v", begin)
			}
		}
	}
}

// TestLastNumbers: the last update of a feed has the numbers that a holder sends after the end of its run.
func TestLastNumbers(t *testing.T) {
	t.Parallel()
	for _, says := range []bool{true, false} {
		b := newBed(t, "worker:0")
		b.d.patience.last = longest
		if !says {
			b.d.patience.last = 100 * time.Millisecond
		}
		h := b.attend("worker:0")
		c := b.feeds(&clusterpb.FeedRequest{Mode: "evaluate", Epochs: 1})
		feed := c.opened().GetFeed()
		h.began()
		h.reads(feed)
		h.delivers(feed, 10)
		h.held(feed, 10, 4)
		c.fed(10)
		c.reads(4)
		b.runs.end("run 1 has ended: it finished")
		want := int64(4)
		if says {
			c.hear()
			h.held(feed, 10, 10)
			h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Left{Left: &clusterpb.HolderLeft{Feed: feed}}})
			want = 10
		}
		if u := c.over(); u.GetFailure() != nil || u.GetProgress().GetFed() != want {
			t.Errorf("the holder leaves %t: %v", says, u)
		}
	}
}

// TestSourceFails: after a failure of the source the programs wait for the next feed.
func TestSourceFails(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	h := b.attend("worker:0")
	c := b.feeds(&clusterpb.FeedRequest{})
	c.opened()
	c.fails("ValueError: x")
	if f := c.over().GetFailure(); f.GetSummary() != "the feed failed: ValueError: x" || f.GetKind() != "source" {
		t.Errorf("%v", f)
	}
	if o := h.over(); !o.GetMore() || o.GetReason() != "ValueError: x" {
		t.Errorf("%v", o)
	}
	b.feeds(&clusterpb.FeedRequest{}).opened()
	h.began()
}

// TestClientEnds: a client that ends before its source fails the feed, in whatever way it ends.
func TestClientEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *fakeClient){
		"cancelled": func(c *fakeClient) { c.end() },
		"closed":    func(c *fakeClient) { _ = c.stream.CloseSend() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "worker:0")
			h := b.attend("worker:0")
			c := b.feeds(&clusterpb.FeedRequest{})
			c.opened()
			end(c)
			if o := h.over(); o.GetReason() != "the client that read the source has ended" || o.GetMore() {
				t.Errorf("%v", o)
			}
			for deadline := time.Now().Add(longest); ; { // the first feed is forgotten soon
				f := b.feeds(&clusterpb.FeedRequest{}).over().GetFailure()
				if f.GetSummary() == "the feed of run 1 is over" {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("%v", f)
				}
			}
		})
	}
}

// TestNobodyReads: when the last program has left, the client receives "stop", and the feed ends with the run,
// without a failure.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	h := b.attend("worker:0")
	c := b.feeds(&clusterpb.FeedRequest{})
	feed := c.opened().GetFeed()
	h.began()
	h.reads(feed)
	h.delivers(feed, 10)
	h.held(feed, 10, 4)
	h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Left{Left: &clusterpb.HolderLeft{Feed: feed}}})
	if o := h.over(); o.GetReason() != "" {
		t.Errorf("%v", o)
	}
	c.until("the stop of the source", func(u *clusterpb.FeedUpdate) bool { return u.GetStop() && !u.GetOver() })
	b.runs.end("run 1 has ended: it finished")
	if u := c.over(); u.GetFailure() != nil || !u.GetStop() || u.GetProgress().GetUnread() != 6 {
		t.Errorf("%v", u)
	}
}

// TestEpochOutOfRange: a producer of an epoch that the feed does not have is refused at once.
func TestEpochOutOfRange(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	h := b.attend("worker:0")
	c := b.feeds(&clusterpb.FeedRequest{Epochs: 2})
	feed := c.opened().GetFeed()
	h.began()
	for _, epoch := range []int32{-1, 2} {
		h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseWanted{
			LeaseWanted: &clusterpb.LeaseWanted{Feed: feed, Producer: 1, Epoch: epoch},
		}})
		if l := h.hear().GetLease(); l.GetProducer() != 1 || !strings.Contains(l.GetRefused(), "the feed has 2 epochs") {
			t.Errorf("epoch %d: %v", epoch, l)
		}
	}
	h.delivers(feed, 1)
}

// TestHello: a holder must send the name of its task, and has one connection.
func TestHello(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	if _, err := b.attend("").stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a holder without a task: %v", err)
	}
	b.attend("worker:0")
	b.knows("worker:0")
	if _, err := b.attend("worker:0").stream.Recv(); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a second holder of a task: %v", err)
	}
}

// TestStrangers: an agent speaks for its own task alone.
func TestStrangers(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0", stranger)
	client := clusterpb.NewFeedsClient(b.conn)
	_, attended := b.attend(stranger).stream.Recv()
	receiving, err := client.Receive(t.Context(), &clusterpb.FeedReceiver{Run: 1, Task: stranger})
	if err != nil {
		t.Fatal(err)
	}
	_, received := receiving.Recv()
	b.d.mu.Lock()
	b.d.waiting[7] = &carried{to: &holder{hello: &clusterpb.HolderHello{Task: stranger}}}
	b.d.mu.Unlock()
	carrying, err := client.Carry(t.Context())
	if err == nil {
		err = carrying.Send(&clusterpb.FeedBytes{Connection: 7})
	}
	if err != nil {
		t.Fatal(err)
	}
	_, carries := carrying.Recv()
	if b.d.takeCarried(7) == nil {
		t.Error("a stranger has ended another task's connection")
	}
	for call, err := range map[string]error{"Attend": attended, "Receive": received, "Carry": carries} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", call, err)
		}
	}
}

package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// longest is the longest time that a test waits for something that must happen.
const longest = 100 * time.Second

// fakeRuns is a coordinator with one run.
type fakeRuns struct {
	mu    sync.Mutex
	run   Run
	notes []string
	why   *clusterpb.Failure // of the run
	asked time.Time          // when the driver last asked for the run
}

func (r *fakeRuns) FeedableRun(context.Context) (Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = time.Now()
	return r.run, nil
}

// Route implements Runs; the certificate is the feed's name alone.
func (r *fakeRuns) Route(feed string) (*clusterpb.FeedRoute, error) {
	return &clusterpb.FeedRoute{Address: "driver:1", Certificate: feed}, nil
}

func (r *fakeRuns) Note(_ context.Context, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, text)
	return nil
}

func (r *fakeRuns) Fail(_ context.Context, run int32, why *clusterpb.Failure) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Over, r.why = fmt.Sprintf("run %d has ended: it failed", run), why
	return nil
}

// told returns the text that was noted, and the failure of the run.
func (r *fakeRuns) told() (notes []string, why *clusterpb.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notes, r.why
}

func (r *fakeRuns) end(why string) {
	r.change(func(run *Run) { run.Over = why })
}

// change changes the run; Tasks are replaced as a whole.
func (r *fakeRuns) change(how func(*Run)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how(&r.run)
}

// restart restarts all tasks; their holders do not attend yet.
func (r *fakeRuns) restart() {
	r.change(func(run *Run) {
		run.Attempt++
		var tasks []Task
		for _, t := range run.Tasks {
			tasks = append(tasks, Task{Name: t.Name, Attempt: run.Attempt})
		}
		run.Tasks = tasks
	})
}

// stranger is a task that the calling agent does not run.
const stranger = "worker:9"

// bed is a driver with a run, and a connection to the driver.
type bed struct {
	t    *testing.T
	d    *Dispatch
	runs *fakeRuns
	conn *grpc.ClientConn
}

func newBed(t *testing.T, tasks ...string) *bed {
	t.Helper()
	b := &bed{t: t, runs: &fakeRuns{run: Run{ID: 1}}}
	for _, name := range tasks {
		b.runs.run.Tasks = append(b.runs.run.Tasks, Task{Name: name})
	}
	b.d = New(b.runs, func(_ context.Context, task string) (string, error) {
		if task == stranger {
			return "", status.Error(codes.PermissionDenied, "another executor's task")
		}
		return "executor", nil
	}, slog.New(slog.DiscardHandler))
	server := grpc.NewServer()
	clusterpb.RegisterFeedsServer(server, b.d)
	clusterpb.RegisterFeedControlServer(server, b.d)
	ln := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	var err error
	b.conn, err = grpc.NewClient("passthrough:bed", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return b
}

// fakeHolder is a holder with messages that a test sends.
type fakeHolder struct {
	b      *bed
	task   string
	stream grpc.BidiStreamingClient[clusterpb.HolderMessage, clusterpb.HolderOrder]
	end    context.CancelFunc
}

func (b *bed) attend(task string) *fakeHolder {
	b.t.Helper()
	return b.attends(task, 0)
}

// attends connects the holder of a task of an attempt.
func (b *bed) attends(task string, attempt int32) *fakeHolder {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.t.Cleanup(cancel)
	stream, err := clusterpb.NewFeedsClient(b.conn).Attend(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	h := &fakeHolder{b: b, task: task, stream: stream, end: cancel}
	h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Hello{
		Hello: &clusterpb.HolderHello{Run: 1, Attempt: attempt, Task: task, Host: "host", Socket: "/" + task},
	}})
	return h
}

// knows waits until the driver knows the holder of a task of the first attempt.
func (b *bed) knows(task string) {
	b.t.Helper()
	receive(b.t, "holder of "+task, func() (*holder, error) {
		return b.d.await(b.t.Context(), holderKey{1, Task{Name: task}})
	})
}

func (h *fakeHolder) say(m *clusterpb.HolderMessage) {
	h.b.t.Helper()
	if err := h.stream.Send(m); err != nil {
		h.b.t.Fatal(err)
	}
}

func (h *fakeHolder) held(feed, received, used int64) {
	h.b.t.Helper()
	h.say(&clusterpb.HolderMessage{
		Message: &clusterpb.HolderMessage_Held{Held: &clusterpb.FeedHeld{Feed: feed, Received: received, Used: used}},
	})
}

func (h *fakeHolder) reads(feed int64) {
	h.b.t.Helper()
	h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Reading{Reading: &clusterpb.FeedReading{Feed: feed}}})
}

// delivers reports the delivery of a partition with this number of records.
func (h *fakeHolder) delivers(feed, rows int64) {
	h.b.t.Helper()
	h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseWanted{
		LeaseWanted: &clusterpb.LeaseWanted{Feed: feed, Producer: 1, Digest: "d"},
	}})
	if l := h.hear().GetLease(); l.GetProducer() != 1 || l.GetSkip() != 0 {
		h.b.t.Fatalf("%s: lease %v", h.task, l)
	}
	h.held(feed, rows, 0)
	h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_LeaseEnded{
		LeaseEnded: &clusterpb.LeaseEnded{Feed: feed, Producer: 1, Rows: rows, Complete: true},
	}})
}

// hear returns the next order.
func (h *fakeHolder) hear() *clusterpb.HolderOrder {
	h.b.t.Helper()
	return receive(h.b.t, "an order for "+h.task, h.stream.Recv)
}

// began returns the feed that begins, by the next order.
func (h *fakeHolder) began() *clusterpb.FeedBegin {
	h.b.t.Helper()
	o := h.hear()
	if o.GetBegin() == nil {
		h.b.t.Fatalf("%s was ordered %v", h.task, o)
	}
	return o.GetBegin()
}

// over waits for the end of the feed.
func (h *fakeHolder) over() *clusterpb.FeedOver {
	h.b.t.Helper()
	for {
		if o := h.hear().GetOver(); o != nil {
			return o
		}
	}
}

// receive calls recv, which must succeed within a time limit.
func receive[T any](t *testing.T, what string, recv func() (T, error)) T {
	t.Helper()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := recv()
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			t.Fatalf("%s: %v", what, a.err)
		}
		return a.value
	case <-time.After(longest):
		t.Fatalf("there is no %s", what)
		panic("unreachable")
	}
}

// fakeClient is a notebook that feeds.
type fakeClient struct {
	b      *bed
	stream grpc.BidiStreamingClient[clusterpb.FeedCommand, clusterpb.FeedUpdate]
	end    context.CancelFunc
}

// feeds begins a feed.
func (b *bed) feeds(request *clusterpb.FeedRequest) *fakeClient {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.t.Cleanup(cancel)
	stream, err := clusterpb.NewFeedControlClient(b.conn).Feed(ctx)
	if err == nil {
		err = stream.Send(&clusterpb.FeedCommand{Command: &clusterpb.FeedCommand_Request{Request: request}})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return &fakeClient{b, stream, cancel}
}

func (c *fakeClient) hear() *clusterpb.FeedUpdate {
	c.b.t.Helper()
	return receive(c.b.t, "an update for the client", c.stream.Recv)
}

// opened returns the places of the holders for producers.
func (c *fakeClient) opened() *clusterpb.FeedOpen {
	c.b.t.Helper()
	for {
		switch u := c.hear(); {
		case u.GetOpen() != nil:
			return u.GetOpen()
		case u.GetWaiting() == "":
			c.b.t.Fatalf("heard %v", u)
		}
	}
}

// over waits for the last update.
func (c *fakeClient) over() *clusterpb.FeedUpdate {
	c.b.t.Helper()
	return c.until("the end of the feed", (*clusterpb.FeedUpdate).GetOver)
}

// until waits for an update that fits.
func (c *fakeClient) until(what string, is func(*clusterpb.FeedUpdate) bool) *clusterpb.FeedUpdate {
	c.b.t.Helper()
	for end := time.Now().Add(longest); time.Now().Before(end); {
		u := c.hear()
		if is(u) {
			return u
		}
		if u.GetOver() {
			c.b.t.Fatalf("the feed is over before %s: %v", what, u)
		}
	}
	c.b.t.Fatalf("there is no %s", what)
	panic("unreachable")
}

// reads waits until this number of records has been read; the feed must not be over by then.
func (c *fakeClient) reads(records int64) {
	c.b.t.Helper()
	c.until("the reading",
		func(u *clusterpb.FeedUpdate) bool { return !u.GetOver() && u.GetProgress().GetFed() == records })
}

func (c *fakeClient) fed(rows int64) {
	c.b.t.Helper()
	if err := c.stream.Send(&clusterpb.FeedCommand{
		Command: &clusterpb.FeedCommand_EpochFed{EpochFed: &clusterpb.FeedEpochFed{Rows: rows, Last: true}},
	}); err != nil {
		c.b.t.Fatal(err)
	}
}

// fails reports that the source has failed.
func (c *fakeClient) fails(reason string) {
	c.b.t.Helper()
	if err := c.stream.Send(&clusterpb.FeedCommand{
		Command: &clusterpb.FeedCommand_Failed{Failed: &clusterpb.FeedSourceFailed{Reason: reason}},
	}); err != nil {
		c.b.t.Fatal(err)
	}
}

// names returns the holders of a feed.
func names(o *clusterpb.FeedOpen) []string {
	var all []string
	for _, h := range o.GetHolders() {
		all = append(all, h.GetTask())
	}
	return slices.Sorted(slices.Values(all))
}

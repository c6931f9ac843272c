// Package feeding reads data of the notebook for a run: Python reads the source, the driver says where it goes and
// how far it is. The records travel from Python's process or from Spark's executors to the tasks, never through here.
package feeding

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/fault"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/result"
)

// Request is what is fed, and how.
type Request struct {
	Data   string // name of the notebook's object
	Mode   string // train | evaluate | inference
	Uneven string // drop | pad | spread
	Epochs int
	More   bool           // another feed follows
	Plan   map[string]any // for Python: columns, label, binary, shuffle, …
}

// Failed is the error of a feed that the driver gave up. Programs that read it fail, too.
type Failed struct{ *result.ClusterError }

// Unwrap implements errors.Unwrap.
func (f *Failed) Unwrap() error { return f.ClusterError }

// Cluster is the cluster whose run is fed.
type Cluster interface {
	// Feeds returns the client of the driver's feeds.
	Feeds() (clusterpb.FeedControlClient, error)
	// Explain returns what an error of a call to the driver means for the user.
	Explain(err error) error
}

// Feed is a feed that is open. Its methods may be called from any goroutine.
type Feed struct {
	py      bridge.Python
	cluster Cluster
	id      string // Python's name for it
	request Request
	begun   *clusterpb.FeedRequest // what the driver is asked for
	stream  grpc.BidiStreamingClient[clusterpb.FeedCommand, clusterpb.FeedUpdate]
	cancel  context.CancelFunc // of stream
	open    *clusterpb.FeedOpen
	order   map[string]any
	slots   bool // the source waits for slots of Spark

	ended chan struct{} // closed when it has ended
	err   error         // how; set before ended is closed

	shown shown
}

// Open has Python look at the data and the driver begin the feed, once every task waits for it. The feed lives as
// long as ctx; waiting is called with what the feed waits for until then.
func Open(ctx context.Context, py bridge.Python, cluster Cluster, request Request, waiting func(string)) (*Feed, error) {
	f := &Feed{
		py: bridge.Lasting(py), cluster: cluster, id: fmt.Sprintf("feed-%d", time.Now().UnixNano()), request: request,
		cancel: func() {}, ended: make(chan struct{}),
	}
	about, err := f.describe(ctx, py)
	if err != nil {
		tell(py, bridge.GlanceTimeout, f.id, "feed_end", map[string]any{"keep": false}) // a Python that is still busy does it next
		return nil, err
	}
	plan, err := json.Marshal(about.Plan)
	if err != nil {
		return nil, fault.New("encode the plan of the feed: %w", err)
	}
	f.order, f.slots = map[string]any{"binary": about.Plan["binary"], "nan": about.Plan["nan"]}, about.Slots
	f.begun = &clusterpb.FeedRequest{
		Mode: request.Mode, Plan: string(plan), Uneven: request.Uneven, More: request.More, Total: about.Total, Epochs: int32(request.Epochs),
		Once: about.Once,
	}
	update, err := f.begin(ctx, waiting)
	if err == nil && update.GetOver() {
		err = &result.ClusterError{Text: update.GetFailure().GetSummary(), Remedy: update.GetFailure().GetRemedy(), Code: 2}
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// begin asks the driver for a feed and waits until it is open, or over. The caller closes f after an error.
func (f *Feed) begin(ctx context.Context, waiting func(string)) (*clusterpb.FeedUpdate, error) {
	feeds, err := f.cluster.Feeds()
	if err != nil {
		return nil, err
	}
	ctx, f.cancel = context.WithCancel(ctx)
	stream, err := feeds.Feed(ctx)
	if err == nil {
		f.stream = stream
		err = stream.Send(&clusterpb.FeedCommand{Command: &clusterpb.FeedCommand_Request{Request: f.begun}})
	}
	for err == nil {
		var update *clusterpb.FeedUpdate
		if update, err = stream.Recv(); err != nil {
			break
		}
		if f.open = update.GetOpen(); f.open != nil || update.GetOver() {
			return update, nil
		}
		waiting(update.GetWaiting())
	}
	return nil, f.cluster.Explain(err)
}

// Run delivers the data until the feed is over. It is called once.
func (f *Feed) Run(ctx context.Context) {
	f.err = f.run(ctx)
	close(f.ended)
}

// Ended is closed when the feed has ended; Err says how.
func (f *Feed) Ended() <-chan struct{} { return f.ended }

// Err returns how a feed that has ended did so: nil if everything was fed, or nobody wanted more.
func (f *Feed) Err() error { return f.err }

func (f *Feed) run(ctx context.Context) error {
	defer f.close()
	for {
		err := f.deliver(ctx)
		if !errors.Is(err, errAgain) {
			return err
		}
		if update, err := f.again(ctx); err != nil || update.GetOver() {
			return cmp.Or(err, failure(update))
		}
	}
}

// errAgain says that the tasks are started again, and are to be fed from the first record.
var errAgain = errors.New("the tasks are started again")

// again begins the feed again, after what reads the source has ended.
func (f *Feed) again(ctx context.Context) (*clusterpb.FeedUpdate, error) {
	f.cancel()
	f.shown.setProgress(nil)
	var ended bool
	if err := bridge.Ask(ctx, f.py, bridge.ProgramTimeout, "feed_again", map[string]any{"id": f.id}, &ended); err != nil {
		return nil, f.unread(" again to the tasks that were restarted", err)
	}
	f.begun.Again = true
	defer f.shown.setWaiting("")
	return f.begin(ctx, f.shown.setWaiting)
}

// failure returns why the driver gave a feed up; nil if it did not.
func failure(u *clusterpb.FeedUpdate) error {
	if u.GetFailure() == nil {
		return nil
	}
	return &Failed{&result.ClusterError{Text: u.GetFailure().GetSummary(), Remedy: u.GetFailure().GetRemedy()}}
}

// deliver delivers the data to one attempt of the run's tasks.
func (f *Feed) deliver(ctx context.Context) error {
	holders := []map[string]any{}
	for _, h := range f.open.GetHolders() {
		holders = append(holders, map[string]any{"task": h.GetTask(), "host": h.GetHost(), "socket": h.GetSocket()})
	}
	f.order["feed"], f.order["key"], f.order["holders"] = f.open.GetFeed(), f.open.GetKey(), holders
	if r := f.open.GetRoute(); r != nil { // secret, like the key: it goes to Python by a private socket
		f.order["route"] = map[string]string{
			"address": r.GetAddress(), "authority": r.GetAuthority(), "certificate": r.GetCertificate(), "key": r.GetKey(),
		}
	}
	var began bool
	args := map[string]any{"id": f.id, "order": f.order, "epochs": f.request.Epochs}
	if err := bridge.Ask(ctx, f.py, bridge.LookupTimeout, "feed_start", args, &began); err != nil {
		return f.unread("", err)
	}
	updates := make(chan error, 1)
	over := make(chan struct{})
	go func() { updates <- f.receive(over) }() // ends with the stream, which close cancels
	return f.watch(ctx, updates, over)
}

// unread returns that the data cannot be read any more, which ends the run's feed.
func (f *Feed) unread(part string, err error) error {
	return &result.ClusterError{
		Text:   fmt.Sprintf("%s could not be fed%s: %v", f.request.Data, part, err),
		Remedy: "the run fails with its feed: start it again, then run this cell again", Topic: "feed-source",
	}
}

// receive takes the driver's updates until the feed is over or is to stop.
func (f *Feed) receive(stop chan<- struct{}) error {
	stopped := false
	for {
		u, err := f.stream.Recv()
		if err != nil {
			return fmt.Errorf("the connection that feeds %s broke: %w", f.request.Data, f.cluster.Explain(err))
		}
		f.shown.setProgress(u.GetProgress())
		if u.GetStop() && !stopped {
			stopped = true
			close(stop)
		}
		switch {
		case !u.GetOver():
		case u.GetAgain():
			return errAgain
		case u.GetFailure().GetKind() == "source":
			return errSource
		default:
			return failure(u)
		}
	}
}

// stopGrace is the time in which the driver, without being asked, says why a holder takes no more.
const stopGrace = 2 * time.Second

// fed is what Python says of the delivery.
type fed struct {
	Fed     []int64          `json:"fed"`
	Ended   bool             `json:"ended"`
	Stopped string           `json:"stopped"` // why a holder took no more
	NaN     map[string]int64 `json:"nan"`     // by column, in the last epoch
	Name    string           `json:"ename"`
	Error   string           `json:"error"`
}

// watch reports what Python has delivered to the driver until one of them is done.
func (f *Feed) watch(ctx context.Context, updates <-chan error, stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	states := make(chan answered)
	var asking sync.WaitGroup
	asking.Go(func() { f.ask(ctx, states) })
	if f.slots {
		asking.Go(func() { f.askSlots(ctx) })
	}
	defer asking.Wait()
	defer cancel()
	reported, python := 0, (<-chan answered)(states)
	var stopped fed
	var late <-chan time.Time
	for {
		select {
		case err := <-updates:
			return err
		case <-stop:
			stop, python = nil, nil
			f.tell("feed_stop", nil)
		case <-ctx.Done():
			return ctx.Err()
		case <-late: // the driver knows no reason
			return f.failed(ctx, stopped, updates)
		case a := <-python:
			state := a.fed
			if a.err != nil {
				return f.unread(" to its end", a.err)
			}
			f.shown.setNaN(state.NaN)
			for ; reported < len(state.Fed); reported++ {
				last := reported == f.request.Epochs-1
				if err := f.stream.Send(&clusterpb.FeedCommand{Command: &clusterpb.FeedCommand_EpochFed{EpochFed: &clusterpb.FeedEpochFed{
					Epoch: int32(reported), Rows: state.Fed[reported], Last: last,
				}}}); err != nil {
					python = nil // the updates say why
				}
			}
			if state.Ended {
				python = nil
			}
			if state.Stopped != "" {
				stopped, late = fed{Name: "Refused", Error: state.Stopped, Stopped: state.Stopped}, time.After(stopGrace)
			}
			if state.Error != "" {
				return f.failed(ctx, state, updates)
			}
		}
	}
}

// answered is an answer of Python, or why there is none.
type answered struct {
	fed
	err error
}

// ask asks Python how far the delivery is. Python answers when an epoch has been delivered and at the end.
func (f *Feed) ask(ctx context.Context, states chan<- answered) {
	for seen, over := 0, false; !over; {
		var a answered
		a.err = f.py.Call(ctx, "feed_wait", map[string]any{"id": f.id, "seen": seen}, &a.fed)
		seen, over = len(a.Fed), a.Ended || a.err != nil
		select {
		case states <- a:
		case <-ctx.Done():
			return
		}
	}
}

// errSource says that the driver knows no other cause than what this client has told it.
var errSource = errors.New("the source failed")

// failed ends a feed whose source failed, or whose holders take no more; the run goes on, and another feed may follow.
// The driver may know the cause: the feed had failed before, the run has ended, or its tasks are started again.
func (f *Feed) failed(ctx context.Context, state fed, updates <-chan error) error {
	reason := (&bridge.PythonError{Name: state.Name, Text: state.Error}).Error()
	_ = f.stream.Send(&clusterpb.FeedCommand{Command: &clusterpb.FeedCommand_Failed{Failed: &clusterpb.FeedSourceFailed{Reason: reason}}}) // else the updates have ended
	select {
	case err := <-updates:
		if err == nil && state.Stopped != "" || err != nil && !errors.Is(err, errSource) {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	e := &result.ClusterError{Text: "the data could not be read: " + reason, Remedy: "the run keeps the records before it and waits for more: correct this and run the cell again with the rest, or stop the run", Topic: "feed-source"}
	if state.Name == "Refused" {
		e.Text, e.Code = state.Error, 2
	}
	return e
}

// close ends the feed at both ends.
func (f *Feed) close() {
	f.Forget(true)
	f.cancel()
}

// Forget has Python end the delivery and forget the data; with keep not what inference made of it.
func (f *Feed) Forget(keep bool) { f.tell("feed_end", map[string]any{"keep": keep}) }

// tell has the lasting Python do something with the feed.
func (f *Feed) tell(fn string, args map[string]any) { tell(f.py, bridge.LookupTimeout, f.id, fn, args) }

// tell has Python do something with a feed that a Python which is gone need not do.
func tell(py bridge.Python, limit time.Duration, id, fn string, args map[string]any) {
	named := map[string]any{"id": id}
	maps.Copy(named, args)
	var done bool
	_ = bridge.Ask(context.Background(), py, limit, fn, named, &done) // else it is gone
}

// Predictions returns what inference made of the data, which is put under a name if that is not "".
func (f *Feed) Predictions(ctx context.Context, into string) (*result.Object, error) {
	var found struct {
		Found bool   `json:"found"`
		Text  string `json:"text"`
	}
	if err := bridge.Ask(ctx, f.py, bridge.ProgramTimeout, "feed_value", map[string]any{"id": f.id, "into": into}, &found); err != nil {
		return nil, fmt.Errorf("the run has ended, but the results of %s could not be taken and are dropped: %w; run inference again, with --output PATH if they are many", f.request.Data, err)
	}
	if !found.Found {
		return nil, &result.ClusterError{Text: "the program ended before every record had a result", Remedy: "read all batches and call feed.results for each, until feed.should_stop()"}
	}
	return &result.Object{ID: f.id, Text: found.Text}, nil
}

// Package feeding delivers data of the notebook to a run. Python reads the source. The driver decides where the data
// goes, and reports the progress. The records travel from the process of Python or from executors of Spark to the
// tasks; they never pass this process.
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
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/result"
)

// Request describes a feed.
type Request struct {
	Data   string // name of the notebook's object with the data
	Mode   string // train | evaluate | inference
	Uneven string // drop | pad | spread
	Epochs int
	More   bool           // another feed follows
	Plan   map[string]any // for Python: columns, label, binary, shuffle, …
}

// Failed is the error of a feed that the driver gave up. A program that reads this feed fails, too.
type Failed struct{ *result.ClusterError }

// Unwrap implements errors.Unwrap.
func (f *Failed) Unwrap() error { return f.ClusterError }

// Cluster is the cluster with the run that is fed.
type Cluster interface {
	// Feeds returns the client of the driver's feeds.
	Feeds() (clusterpb.FeedControlClient, error)
	// Explain returns the meaning, for the user, of an error of a call to the driver.
	Explain(err error) error
}

// Client is the client of an open feed. Its methods may be called from any goroutine.
type Client struct {
	py      bridge.Python
	cluster Cluster
	id      string // the feed's name in Python
	request Request
	begun   *clusterpb.FeedRequest // the request to the driver
	stream  grpc.BidiStreamingClient[clusterpb.FeedCommand, clusterpb.FeedUpdate]
	cancel  context.CancelFunc // of stream
	open    *clusterpb.FeedOpen
	order   map[string]any
	slots   bool // the source waits for slots of Spark

	ended chan struct{} // closed at the end of the feed
	err   error         // the error that ended it; set before ended is closed

	shown shown
}

// Open asks Python to look at the data, and the driver to begin the feed, which it does when every task waits for it.
// Until then Open calls waiting with the text of what the feed waits for. The feed lives as long as ctx.
func Open(ctx context.Context, py bridge.Python, cluster Cluster, request Request,
	waiting func(string),
) (*Client, error) {
	f := &Client{
		py: bridge.Lasting(py), cluster: cluster, id: fmt.Sprintf("feed-%d", time.Now().UnixNano()), request: request,
		cancel: func() {}, ended: make(chan struct{}),
	}
	about, err := f.describe(ctx, py)
	if err != nil {
		// A Python that is busy handles feed_end as its next call.
		tell(py, bridge.GlanceTimeout, f.id, "feed_end", map[string]any{"keep": false})
		return nil, err
	}
	plan, err := json.Marshal(about.Plan)
	if err != nil {
		return nil, errtext.Fault("encode the plan of the feed: %w", err)
	}
	f.order, f.slots = map[string]any{"binary": about.Plan["binary"], "nan": about.Plan["nan"]}, about.Slots
	f.begun = &clusterpb.FeedRequest{
		Mode: request.Mode, Plan: string(plan), Uneven: request.Uneven, More: request.More, Total: about.Total,
		Epochs: int32(request.Epochs), Once: about.Once,
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

// begin asks the driver for a feed and waits until the feed is open or over. After an error the caller closes f.
func (f *Client) begin(ctx context.Context, waiting func(string)) (*clusterpb.FeedUpdate, error) {
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
func (f *Client) Run(ctx context.Context) {
	f.err = f.run(ctx)
	close(f.ended)
}

// Ended returns a channel that is closed at the end of the feed. After that, Err returns the feed's error.
func (f *Client) Ended() <-chan struct{} { return f.ended }

// Err returns the error of a feed that has ended; nil if all data was fed, or no task wanted more.
func (f *Client) Err() error { return f.err }

func (f *Client) run(ctx context.Context) error {
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

// errAgain ends the delivery to tasks that are restarted: they must be fed from the first record.
var errAgain = errors.New("the tasks are started again")

// again begins the feed again, after the readers of the source have ended.
func (f *Client) again(ctx context.Context) (*clusterpb.FeedUpdate, error) {
	f.cancel()
	f.shown.progress.set(nil)
	var ended bool
	if err := bridge.Ask(ctx, f.py, bridge.ProgramTimeout, "feed_again", map[string]any{"id": f.id}, &ended); err != nil {
		return nil, f.unread(" again to the tasks that were restarted", err)
	}
	f.begun.Again = true
	defer f.shown.waiting.set("")
	return f.begin(ctx, f.shown.waiting.set)
}

// failure returns the reason for which the driver gave a feed up; nil if it did not.
func failure(u *clusterpb.FeedUpdate) error {
	if u.GetFailure() == nil {
		return nil
	}
	return &Failed{&result.ClusterError{Text: u.GetFailure().GetSummary(), Remedy: u.GetFailure().GetRemedy()}}
}

// deliver delivers the data to one attempt of the run's tasks.
func (f *Client) deliver(ctx context.Context) error {
	holders := []map[string]any{}
	for _, h := range f.open.GetHolders() {
		holders = append(holders, map[string]any{"task": h.GetTask(), "host": h.GetHost(), "socket": h.GetSocket()})
	}
	f.order["feed"], f.order["key"], f.order["holders"] = f.open.GetFeed(), f.open.GetKey(), holders
	if r := f.open.GetRoute(); r != nil { // secret, like the key: it is sent to Python by a private socket
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
	go func() { updates <- f.receive(over) }() // ends with the stream: close cancels it
	return f.watch(ctx, updates, over)
}

// unread returns the error of data that can no longer be read. It ends the run's feed.
func (f *Client) unread(part string, err error) error {
	return &result.ClusterError{
		Text:   fmt.Sprintf("%s could not be fed%s: %v", f.request.Data, part, err),
		Remedy: "the run fails with its feed: start it again, then run this cell again", Topic: "feed-source",
	}
}

// receive takes the driver's updates until the feed is over. It closes stop when the source must stop.
func (f *Client) receive(stop chan<- struct{}) error {
	stopped := false
	for {
		u, err := f.stream.Recv()
		if err != nil {
			return fmt.Errorf("the connection that feeds %s broke: %w", f.request.Data, f.cluster.Explain(err))
		}
		f.shown.progress.set(u.GetProgress())
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

// stopGrace is the time in which the driver sends, unasked, the reason why a holder takes no more records.
const stopGrace = 2 * time.Second

// fed is Python's report about the delivery.
type fed struct {
	Fed     []int64          `json:"fed"`
	Ended   bool             `json:"ended"`
	Stopped string           `json:"stopped"` // why a holder takes no more records
	NaN     map[string]int64 `json:"nan"`     // by column, in the last epoch
	Name    string           `json:"ename"`
	Error   string           `json:"error"`
}

// watch reports to the driver what Python has delivered, until the driver or Python ends the feed.
func (f *Client) watch(ctx context.Context, updates <-chan error, stop <-chan struct{}) error {
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
			f.shown.nan.set(state.NaN)
			for ; reported < len(state.Fed); reported++ {
				last := reported == f.request.Epochs-1
				if err := f.stream.Send(
					&clusterpb.FeedCommand{Command: &clusterpb.FeedCommand_EpochFed{EpochFed: &clusterpb.FeedEpochFed{
						Epoch: int32(reported), Rows: state.Fed[reported], Last: last,
					}}}); err != nil {
					python = nil // the updates have the reason
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

// answered is an answer of Python, or the error instead of it.
type answered struct {
	fed
	err error
}

// ask asks Python about the progress of the delivery. Python answers after each epoch, and at the end.
func (f *Client) ask(ctx context.Context, states chan<- answered) {
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

// errSource ends a feed for which the driver knows no other cause than the report of this client.
var errSource = errors.New("the source failed")

// failed ends a feed with a failed source, or with holders that take no more records. The run continues, and another
// feed may follow. The driver may know the cause: an earlier failure of the feed, the end of the run, or a restart of
// its tasks.
func (f *Client) failed(ctx context.Context, state fed, updates <-chan error) error {
	reason := (&bridge.PythonError{Name: state.Name, Text: state.Error}).Error()
	// If the stream is broken, the updates have ended, too.
	_ = f.stream.Send(
		&clusterpb.FeedCommand{Command: &clusterpb.FeedCommand_Failed{Failed: &clusterpb.FeedSourceFailed{Reason: reason}}})
	select {
	case err := <-updates:
		if err == nil && state.Stopped != "" || err != nil && !errors.Is(err, errSource) {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	e := &result.ClusterError{
		Text: "the data could not be read: " + reason, Remedy: "the run keeps the records before it and waits for more: " +
			"correct this and run the cell again with the rest, or stop the run", Topic: "feed-source",
	}
	if state.Name == "Refused" {
		e.Text, e.Code = state.Error, 2
	}
	return e
}

// close ends the feed at both ends.
func (f *Client) close() {
	f.Forget(true)
	f.cancel()
}

// Forget asks Python to end the delivery and to forget the data. With keep, Python keeps the results of inference.
func (f *Client) Forget(keep bool) { f.tell("feed_end", map[string]any{"keep": keep}) }

// tell calls a function of the lasting Python about this feed.
func (f *Client) tell(fn string, args map[string]any) {
	tell(f.py, bridge.LookupTimeout, f.id, fn, args)
}

// tell calls a function of Python about a feed. It ignores errors: a Python that has exited has nothing left to do.
func tell(py bridge.Python, limit time.Duration, id, fn string, args map[string]any) {
	named := map[string]any{"id": id}
	maps.Copy(named, args)
	var done bool
	_ = bridge.Ask(context.Background(), py, limit, fn, named, &done) // an error: Python has exited
}

// Predictions returns the results of inference. Python also assigns them to the name into, unless into is "".
func (f *Client) Predictions(ctx context.Context, into string) (*result.Object, error) {
	var found struct {
		Found bool   `json:"found"`
		Text  string `json:"text"`
	}
	if err := bridge.Ask(ctx, f.py, bridge.ProgramTimeout, "feed_value", map[string]any{"id": f.id, "into": into},
		&found); err != nil {
		return nil, fmt.Errorf("the run has ended, but the results of %s could not be taken and are dropped: %w; "+
			"run inference again, with --output PATH if they are many", f.request.Data, err)
	}
	if !found.Found {
		return nil, &result.ClusterError{
			Text:   "the program ended before every record had a result",
			Remedy: "read all batches and call feed.results for each, until feed.should_stop()",
		}
	}
	return &result.Object{ID: f.id, Text: found.Text}, nil
}

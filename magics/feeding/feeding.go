// Package feeding reads data of the notebook for a run: Python reads the source, the driver says where it goes and
// how far it is. The records travel from Python's process or from Spark's executors to the tasks, never through here.
package feeding

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
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

// Feed is a feed that is open. Its methods may be called from any goroutine.
type Feed struct {
	py      bridge.Python
	id      string // Python's name for it
	request Request
	stream  interface {
		Send(*clusterpb.FeedCommand) error
		Recv() (*clusterpb.FeedUpdate, error)
		CloseSend() error
	}
	cancel context.CancelFunc
	open   *clusterpb.FeedOpen
	order  map[string]any

	ended chan error // capacity 1: how it ended

	mu sync.Mutex
	// guarded by mu
	progress *clusterpb.FeedProgress
}

// description is what Python says of DATA.
type description struct {
	Plan    map[string]any `json:"plan"`
	Columns []string       `json:"columns"`
	Total   int64          `json:"total"`
	Once    bool           `json:"once"`
}

// Open has Python look at the data and the driver begin the feed, once every task waits for it. The feed lives as
// long as ctx; waiting is called with what the feed waits for until then.
func Open(ctx context.Context, py bridge.Python, member *session.Handle, request Request, waiting func(string)) (*Feed, error) {
	f := &Feed{py: py, id: fmt.Sprintf("%s-%d", member.Name, time.Now().UnixNano()), request: request, ended: make(chan error, 1)}
	about, err := f.describe(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := json.Marshal(about.Plan)
	if err != nil {
		return nil, fmt.Errorf("describe the feed: %w", err)
	}
	ctx, f.cancel = context.WithCancel(ctx)
	if err := f.begin(ctx, member, plan, about); err != nil {
		f.close()
		return nil, err
	}
	for f.open == nil {
		update, err := f.stream.Recv()
		switch {
		case err != nil:
			f.close()
			return nil, member.Explain(err)
		case update.GetFailure() != nil:
			f.close()
			return nil, &result.ClusterError{Text: update.GetFailure().GetSummary(), Remedy: update.GetFailure().GetRemedy(), Code: 2}
		case update.GetWaiting() != "":
			waiting(update.GetWaiting())
		}
		f.open = update.GetOpen()
	}
	return f, nil
}

func (f *Feed) describe(ctx context.Context) (description, error) {
	plan := map[string]any{"mode": f.request.Mode, "epochs": f.request.Epochs, "uneven": f.request.Uneven}
	maps.Copy(plan, f.request.Plan)
	var about description
	args := map[string]any{"id": f.id, "name": f.request.Data, "plan": plan}
	if err := bridge.Ask(ctx, f.py, bridge.ProgramTimeout, "feed_describe", args, &about); err != nil {
		return description{}, fmt.Errorf("look at %s: %w", f.request.Data, err)
	}
	if about.Once && f.request.Epochs > 1 {
		f.forget()
		return description{}, &result.ClusterError{Text: fmt.Sprintf("%s is an iterator, which can be read once: --epochs %d needs arrays or a DataFrame", f.request.Data, f.request.Epochs), Code: 2}
	}
	return about, nil
}

func (f *Feed) begin(ctx context.Context, member *session.Handle, plan []byte, about description) error {
	feeds, err := member.Feeds()
	if err != nil {
		return err
	}
	stream, err := feeds.Feed(ctx)
	if err != nil {
		return member.Explain(err)
	}
	f.stream = stream
	f.order = map[string]any{"binary": about.Plan["binary"]}
	err = stream.Send(&clusterpb.FeedCommand{Command: &clusterpb.FeedCommand_Request{Request: &clusterpb.FeedRequest{
		Mode: f.request.Mode, Plan: string(plan), Uneven: f.request.Uneven, More: f.request.More, Total: about.Total, Epochs: int32(f.request.Epochs),
	}}})
	if err != nil {
		return member.Explain(err)
	}
	return nil
}

// Run delivers the data until the feed is over. Ended says how it ended.
func (f *Feed) Run(ctx context.Context) { f.ended <- f.run(ctx) }

// Ended returns how the feed ended, once: nil if everything was fed, or nobody wanted more.
func (f *Feed) Ended() <-chan error { return f.ended }

func (f *Feed) run(ctx context.Context) error {
	defer f.close()
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
		return fmt.Errorf("read %s: %w", f.request.Data, err)
	}
	updates := make(chan error, 1)
	over := make(chan struct{})
	go func() { updates <- f.receive(over) }() // ends with the stream, which close cancels
	return f.watch(ctx, updates, over)
}

// receive takes the driver's updates until the feed is over or is to stop.
func (f *Feed) receive(stop chan<- struct{}) error {
	stopped := false
	for {
		u, err := f.stream.Recv()
		if err != nil {
			return fmt.Errorf("follow the feed: %w", err)
		}
		f.mu.Lock()
		f.progress = u.GetProgress()
		f.mu.Unlock()
		if u.GetStop() && !stopped {
			stopped = true
			close(stop)
		}
		if !u.GetOver() {
			continue
		}
		if u.GetFailure() != nil {
			return &Failed{&result.ClusterError{Text: u.GetFailure().GetSummary(), Remedy: u.GetFailure().GetRemedy()}}
		}
		return nil
	}
}

// stopGrace is the time in which the driver says why a holder takes no more.
const stopGrace = 10 * time.Second

// fed is what Python says of the delivery.
type fed struct {
	Fed     []int64 `json:"fed"`
	Ended   bool    `json:"ended"`
	Stopped string  `json:"stopped"` // why a holder took no more
	Name    string  `json:"ename"`
	Error   string  `json:"error"`
}

// watch reports what Python has delivered to the driver until one of them is done.
func (f *Feed) watch(ctx context.Context, updates <-chan error, stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	states := make(chan answered)
	var asking sync.WaitGroup
	asking.Go(func() { f.ask(ctx, states) })
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
			f.forget()
		case <-ctx.Done():
			return ctx.Err()
		case <-late: // the driver knows no reason
			return f.failed(stopped)
		case a := <-python:
			state := a.fed
			if a.err != nil {
				return fmt.Errorf("read %s: %w", f.request.Data, a.err)
			}
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
				stopped, late = fed{Name: "Refused", Error: state.Stopped}, time.After(stopGrace)
			}
			if state.Error != "" {
				return f.failed(state)
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

// failed ends a feed whose source failed; the run goes on, and another feed may follow.
func (f *Feed) failed(state fed) error {
	reason := (&bridge.PythonError{Name: state.Name, Text: state.Error}).Error()
	err := f.stream.Send(&clusterpb.FeedCommand{Command: &clusterpb.FeedCommand_Failed{Failed: &clusterpb.FeedSourceFailed{Reason: reason}}})
	if err == nil {
		_, err = f.stream.Recv() // until the driver has it
	}
	if state.Name == "Refused" {
		return &result.ClusterError{Text: state.Error, Remedy: "the run waits for data: train again, or stop", Code: 2}
	}
	if err != nil && state.Error == "" {
		return fmt.Errorf("follow the feed: %w", err)
	}
	return &result.ClusterError{Text: "the data could not be read: " + reason, Remedy: "the run waits for data: train again, or stop"}
}

// close ends the feed at both ends.
func (f *Feed) close() {
	f.forget()
	f.cancel()
}

// forget has Python end the delivery.
func (f *Feed) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), bridge.LookupTimeout)
	defer cancel()
	var ended bool
	_ = f.py.Call(ctx, "feed_end", map[string]any{"id": f.id}, &ended) // a Python that is gone delivers nothing
}

// Progress returns how far the feed is; nil before it has begun, and of no feed.
func (f *Feed) Progress() *clusterpb.FeedProgress {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress
}

// Predictions returns what inference made of the data, which is put under a name if that is not "".
func (f *Feed) Predictions(ctx context.Context, into string) (*result.Object, error) {
	var found struct {
		Found bool   `json:"found"`
		Text  string `json:"text"`
	}
	if err := bridge.Ask(ctx, f.py, bridge.ProgramTimeout, "feed_value", map[string]any{"id": f.id, "into": into}, &found); err != nil {
		return nil, fmt.Errorf("take the results of %s: %w", f.request.Data, err)
	}
	if !found.Found {
		return nil, &result.ClusterError{Text: "the program ended before every record had a result"}
	}
	return &result.Object{ID: f.id, Text: found.Text}, nil
}

// Forget gives up what inference made.
func (f *Feed) Forget() {
	ctx, cancel := context.WithTimeout(context.Background(), bridge.LookupTimeout)
	defer cancel()
	var forgotten bool
	_ = f.py.Call(ctx, "feed_forget", map[string]any{"id": f.id}, &forgotten) // a Python that is gone has nothing
}

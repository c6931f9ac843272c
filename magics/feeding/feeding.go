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

// look is the interval in which Python is asked how far it is.
const look = 100 * time.Millisecond

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
	results  map[string]*clusterpb.FeedResult
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
		f.results = u.GetResults()
		f.mu.Unlock()
		if u.GetStop() && !stopped {
			stopped = true
			close(stop)
		}
		if !u.GetOver() {
			continue
		}
		if u.GetFailure() != nil {
			return &result.ClusterError{Text: u.GetFailure().GetSummary(), Remedy: u.GetFailure().GetRemedy()}
		}
		return nil
	}
}

// fed is what Python says of the delivery.
type fed struct {
	Fed   []int64 `json:"fed"`
	Ended bool    `json:"ended"`
	Name  string  `json:"ename"`
	Error string  `json:"error"`
}

// watch reports what Python has delivered to the driver until one of them is done.
func (f *Feed) watch(ctx context.Context, updates <-chan error, stop <-chan struct{}) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	reported, python := 0, tick.C
	for {
		select {
		case err := <-updates:
			return err
		case <-stop:
			stop, python = nil, nil
			f.forget()
		case <-ctx.Done():
			return ctx.Err()
		case <-python:
			var state fed
			if err := bridge.Ask(ctx, f.py, bridge.LookupTimeout, "feed_state", map[string]any{"id": f.id}, &state); err != nil {
				return fmt.Errorf("read %s: %w", f.request.Data, err)
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
			if state.Error != "" {
				return f.failed(state)
			}
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

// Results returns what the tasks made of the records, by task, once the feed is over.
func (f *Feed) Results() map[string]*clusterpb.FeedResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.results
}

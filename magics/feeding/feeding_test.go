package feeding

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/result"
)

// driver is a driver with the updates that a test puts into a channel; it passes each command to the test.
type driver struct {
	grpc.ClientStream
	updates  chan *clusterpb.FeedUpdate
	commands chan *clusterpb.FeedCommand
	ctx      context.Context
}

func newDriver() *driver {
	return &driver{updates: make(chan *clusterpb.FeedUpdate, 10), commands: make(chan *clusterpb.FeedCommand, 10)}
}

func (d *driver) Feeds() (clusterpb.FeedControlClient, error) { return d, nil }

func (d *driver) Explain(err error) error { return err }

func (d *driver) Feed(ctx context.Context,
	_ ...grpc.CallOption,
) (grpc.BidiStreamingClient[clusterpb.FeedCommand, clusterpb.FeedUpdate], error) {
	d.ctx = ctx
	return d, nil
}

func (d *driver) Send(c *clusterpb.FeedCommand) error {
	d.commands <- c
	return nil
}

func (d *driver) Recv() (*clusterpb.FeedUpdate, error) {
	select {
	case u, ok := <-d.updates:
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		return u, nil
	case <-d.ctx.Done():
		return nil, d.ctx.Err()
	}
}

// notebook is a Python that describes 10 records and answers each feed_wait with the next state.
type notebook struct {
	once    bool
	refuses string // why the data cannot be fed
	fails   error  // of feed_describe
	slots   string // what feed_waits answers; "": no source of Spark
	states  chan fed
	dead    error // of feed_wait, when states is closed

	mu    sync.Mutex
	calls []string
}

func (n *notebook) Call(ctx context.Context, fn string, _, reply any) error {
	n.mu.Lock()
	n.calls = append(n.calls, fn)
	n.mu.Unlock()
	var answer any = true
	switch fn {
	case "feed_describe":
		if n.fails != nil {
			return n.fails
		}
		if n.refuses != "" {
			return &bridge.PythonError{Name: "UsageError", Text: n.refuses}
		}
		answer = description{Plan: map[string]any{"binary": map[string]any{}}, Total: 10, Once: n.once, Slots: n.slots != ""}
	case "feed_waits":
		answer = n.slots
	case "feed_value":
		answer = map[string]any{"found": false}
	case "feed_wait":
		select {
		case state, ok := <-n.states:
			if !ok {
				return n.dead
			}
			answer = state
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, reply)
}

// called returns how often a function was called.
func (n *notebook) called(fn string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, each := range n.calls {
		if each == fn {
			count++
		}
	}
	return count
}

func opened(run int32) *clusterpb.FeedUpdate {
	return &clusterpb.FeedUpdate{Open: &clusterpb.FeedOpen{Feed: 1, Run: run}}
}

func over(kind, summary string) *clusterpb.FeedUpdate {
	u := &clusterpb.FeedUpdate{Over: true}
	if kind != "" {
		u.Failure = &clusterpb.Failure{Kind: kind, Summary: summary, Remedy: "do something else"}
	}
	return u
}

// TestFeed: how an open feed ends.
func TestFeed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		states  []fed                              // of Python; no state follows the last one
		dead    error                              // error of Python, after the states
		answers map[string]*clusterpb.FeedUpdate   // of the driver, by command; "": at once
		more    func(*driver)                      // sends further updates of the driver
		want    string                             // part of the error; "": none
		check   func(*testing.T, error, *notebook) // of the error and the calls
	}{
		"everything is fed": {
			states:  []fed{{Fed: []int64{10}}, {Fed: []int64{10, 10}, Ended: true}},
			answers: map[string]*clusterpb.FeedUpdate{"last": over("", "")},
		},
		"nobody reads": {
			answers: map[string]*clusterpb.FeedUpdate{"": {Stop: true}},
			more:    func(d *driver) { d.updates <- &clusterpb.FeedUpdate{Stop: true}; d.updates <- over("", "") },
			check: func(t *testing.T, _ error, py *notebook) {
				if n := py.called("feed_stop"); n != 1 {
					t.Errorf("Python was stopped %d times", n)
				}
			},
		},
		"the source fails": {
			states:  []fed{{Name: "ZeroDivisionError", Error: "division by zero (Cell In[5], line 3, in batches)", Ended: true}},
			answers: map[string]*clusterpb.FeedUpdate{"failed": over("source", "x")},
			want:    "the data could not be read: ZeroDivisionError: division by zero (Cell In[5], line 3, in batches)",
		},
		"the data is refused": {
			states:  []fed{{Name: "Refused", Error: "column x is a map", Ended: true}},
			answers: map[string]*clusterpb.FeedUpdate{"failed": over("source", "x")},
			want:    "column x is a map",
		},
		"the source fails after the run": {
			states:  []fed{{Name: "ConnectionError", Error: "gone", Ended: true}},
			answers: map[string]*clusterpb.FeedUpdate{"failed": over("program", "worker:1 failed")},
			want:    "worker:1 failed",
			check: func(t *testing.T, err error, _ *notebook) {
				if _, ok := errors.AsType[*Failed](err); !ok {
					t.Errorf("%T is no failure of the run", err)
				}
			},
		},
		"a holder takes no more, and the driver knows why": {
			states:  []fed{{Stopped: "worker:1 takes no more", Ended: true}},
			answers: map[string]*clusterpb.FeedUpdate{"": over("program", "worker:1 was killed")},
			want:    "worker:1 was killed",
		},
		"a holder takes no more, and nobody knows why": {
			states:  []fed{{Stopped: "worker:1 takes no more", Ended: true}},
			answers: map[string]*clusterpb.FeedUpdate{"failed": over("source", "x")},
			want:    "worker:1 takes no more",
		},
		"a holder takes no more, because enough is read": {
			states:  []fed{{Stopped: "worker:1 takes no more", Ended: true}},
			answers: map[string]*clusterpb.FeedUpdate{"failed": over("", "")},
		},
		"Python is gone": {
			dead: bridge.ErrNoPython,
			want: "df could not be fed to its end: the notebook's Python does not answer",
		},
		"the driver is gone": {
			more: func(d *driver) { close(d.updates) },
			want: "the connection that feeds df broke: unexpected EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, py := newDriver(), &notebook{states: make(chan fed, len(test.states)), dead: test.dead}
				for _, state := range test.states {
					py.states <- state
				}
				if test.dead != nil {
					close(py.states)
				}
				d.updates <- opened(3)
				f, err := Open(t.Context(), py, d, Request{Data: "df", Mode: "train", Epochs: 2}, func(string) {})
				if err != nil {
					t.Fatal(err)
				}
				<-d.commands // the request
				if u := test.answers[""]; u != nil {
					d.updates <- u
				}
				if test.more != nil {
					test.more(d)
				}
				go f.Run(t.Context())
				go func() {
					for c := range d.commands {
						switch {
						case c.GetEpochFed().GetLast():
							d.updates <- test.answers["last"]
						case c.GetFailed() != nil:
							d.updates <- test.answers["failed"]
						}
					}
				}()
				<-f.Ended()
				synctest.Wait()
				close(d.commands)
				err = f.Err()
				if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("the feed ended with %v, not %q", err, test.want)
				}
				if py.called("feed_end") != 1 || d.ctx.Err() == nil {
					t.Errorf("the feed is still open: Python was called %v, the stream has ended: %v", py.calls, d.ctx.Err())
				}
				if test.check != nil {
					test.check(t, err, py)
				}
			})
		})
	}
}

// TestAgain: the tasks are started again, and the feed begins with the first record.
func TestAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, py := newDriver(), &notebook{states: make(chan fed, 2)}
		d.updates <- opened(3)
		f, err := Open(t.Context(), py, d, Request{Data: "df", Epochs: 1}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		go f.Run(t.Context())
		if first := (<-d.commands).GetRequest(); first == nil || first.GetAgain() {
			t.Fatalf("the first command is %v", first)
		}
		d.updates <- &clusterpb.FeedUpdate{Over: true, Again: true}
		if again := (<-d.commands).GetRequest(); !again.GetAgain() || py.called("feed_again") != 1 {
			t.Fatalf("the feed is asked for again by %v, Python was called %v", again, py.calls)
		}
		d.updates <- &clusterpb.FeedUpdate{Waiting: "worker:1 to read"}
		synctest.Wait()
		if got := f.Waiting(); got != "worker:1 to read" {
			t.Errorf("the feed waits for %q", got)
		}
		d.updates <- opened(3)
		py.states <- fed{Fed: []int64{10}, Ended: true}
		if c := <-d.commands; c.GetEpochFed().GetRows() != 10 || !c.GetEpochFed().GetLast() {
			t.Fatalf("the driver is told %v", c)
		}
		d.updates <- &clusterpb.FeedUpdate{Over: true, Progress: &clusterpb.FeedProgress{Fed: 10}}
		<-f.Ended()
		if err := f.Err(); err != nil || f.Progress().GetFed() != 10 || f.Waiting() != "" {
			t.Errorf("the feed ended with %v, %v, waiting for %q", err, f.Progress(), f.Waiting())
		}
	})
}

// TestSlots: while the source waits for a slot of Spark, Waiting returns that.
func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, py := newDriver(), &notebook{states: make(chan fed), slots: "waiting for a slot"}
		d.updates <- opened(3)
		f, err := Open(t.Context(), py, d, Request{Data: "df", Epochs: 1}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		go f.Run(t.Context())
		time.Sleep(slotsEvery)
		synctest.Wait()
		if got := f.Waiting(); got != py.slots {
			t.Errorf("the feed waits for %q", got)
		}
		d.updates <- over("", "")
		<-f.Ended()
		if got := f.Waiting(); got != "" || f.Err() != nil {
			t.Errorf("after its end with %v the feed waits for %q", f.Err(), got)
		}
	})
}

// TestOpen: the errors of feeds that cannot begin, and what a feed waits for before it begins.
func TestOpen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		once    bool
		refuses string
		updates []*clusterpb.FeedUpdate
		want    string
		waited  []string
		ended   int // calls of feed_end
	}{
		"at once": {updates: []*clusterpb.FeedUpdate{opened(1)}},
		"after a while": {
			updates: []*clusterpb.FeedUpdate{{Waiting: "worker:0"}, {Waiting: "worker:1"}, opened(1)},
			waited:  []string{"worker:0", "worker:1"},
		},
		"no run": {
			updates: []*clusterpb.FeedUpdate{over("usage", "no run takes data")}, want: "no run takes data", ended: 1,
		},
		"refused": {
			refuses: "column 'd' is date: cast it to int", want: "df cannot be fed: column 'd' is date: cast it to int",
			ended: 1,
		},
		"an iterator": {once: true, want: "df is an iterator, which can be read once", ended: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, py := newDriver(), &notebook{once: test.once, refuses: test.refuses}
			for _, u := range test.updates {
				d.updates <- u
			}
			var waited []string
			_, err := Open(t.Context(), py, d, Request{Data: "df", Epochs: 2},
				func(what string) { waited = append(waited, what) })
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("opened with %v, not %q", err, test.want)
			}
			if c, ok := errors.AsType[*result.ClusterError](err); err != nil && (!ok || c.Code != 2) {
				t.Errorf("%v is not the user's error", err)
			}
			if strings.Join(waited, ",") != strings.Join(test.waited, ",") {
				t.Errorf("waited for %q", waited)
			}
			if n := py.called("feed_end"); n != test.ended {
				t.Errorf("Python was told %d times to forget the data", n)
			}
		})
	}
}

package coordinator

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// stepIn reads the number in a run's file: what was written for TensorBoard last.
func stepIn(dir string) func() ([]Scalar, error) {
	return func() ([]Scalar, error) {
		text, err := os.ReadFile(filepath.Join(dir, "step"))
		if err != nil {
			return nil, err
		}
		step, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return []Scalar{{Tag: "loss", Step: step, File: "step"}}, err
	}
}

// TestARunsLastStep: however a run ends, its end tells of the last step that its event
// files hold.
func TestARunsLastStep(t *testing.T) {
	t.Parallel()
	for want, code := range map[string]int32{"finished": 0, "failed": 1} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			c := coordinate(t, true)
			ctx, cancel := context.WithCancel(within(t))
			watching := make(chan struct{})
			go func() { c.WatchEvents(ctx, EventFiles{Read: stepIn}); close(watching) }()
			defer func() { cancel(); <-watching }()
			logs := c.entered(ctx)
			write := func(step string) {
				if err := os.WriteFile(filepath.Join(logs, "step"), []byte(step), 0o600); err != nil {
					t.Error(err)
				}
			}
			write("3")
			ended := false
			var last *clusterpb.RunStatus
			stream := &sent[clusterpb.RunUpdate]{ctx: ctx, every: func(u *clusterpb.RunUpdate) {
				if last = u.GetStatus(); ended || last.GetProgress().GetStep() != 3 {
					return
				}
				ended = true
				write("7")
				c.do(func() {
					for i := range 2 {
						c.handle(lifecycle.ProgramExited{
							Run: 1, Attempt: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: i}, Exit: &clusterpb.Exited{Code: code},
						})
					}
				})
			}}
			if err := c.Control().(*control).Follow(&clusterpb.FollowRequest{}, stream); err != nil {
				t.Fatal(err)
			}
			if last.GetState() != want || last.GetProgress().GetStep() != 7 {
				t.Errorf("a run that has %s tells that it has %s at step %d, not 7", want, last.GetState(),
					last.GetProgress().GetStep())
			}
		})
	}
}

// entered starts run 1 and lets its tasks enter their program; it returns their logs' folder.
func (c *coordinated) entered(ctx context.Context) (logs string) {
	c.t.Helper()
	if _, err := c.startRun(ctx,
		&clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}); err != nil {
		c.t.Fatal(err)
	}
	c.do(func() {
		for _, id := range []cluster.ExecutorID{"0", "1"} {
			c.handle(lifecycle.PortPrepared{Exec: id, Run: 1, Attempt: 1, Port: 7000})
		}
		for i := range 2 {
			c.handle(lifecycle.ProgramEntered{Run: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: i}})
		}
		logs = c.files.localPath(c.runs.current().status.GetLogDir())
	})
	return logs
}

// ownFile records what the coordinator writes to its event file.
type ownFile struct {
	mu      sync.Mutex
	written []Scalar // guarded by mu
	removed bool     // guarded by mu
	path    string
}

func (f *ownFile) Append(s []Scalar) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = append(f.written, s...)
	return nil
}

func (f *ownFile) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removed = true
	return nil
}

func (f *ownFile) Path() string { return f.path }

// removing is a spool that records removals.
type removing struct {
	faraway
	removed []string
}

func (s *removing) Remove(name string) error { s.removed = append(s.removed, name); return nil }

// TestOwnEventsAreRemovedRemotely: the driver's event file is removed through the spool, which may have
// uploaded it.
func TestOwnEventsAreRemovedRemotely(t *testing.T) {
	t.Parallel()
	far := &removing{faraway: faraway{folder: t.TempDir()}}
	c := coordinate(t, true, func(cfg *Config) { cfg.Spool, cfg.Dir = far, "hdfs://nn:8020/runs" })
	logs := c.entered(within(t))
	own := &ownFile{path: filepath.Join(logs, "events.out.tfevents.1"+rundir.OwnEvents)}
	r := eventReading{
		run: 1, own: own, next: func() ([]Scalar, error) { return []Scalar{{Tag: "epoch_loss", File: "train/x"}}, nil },
	}
	if err := c.readEvents(within(t), &r); err != nil {
		t.Fatal(err)
	}
	if want := []string{"run-001/logs/events.out.tfevents.1" + rundir.OwnEvents}; !slices.Equal(far.removed, want) {
		t.Errorf("removed are %q, want %q", far.removed, want)
	}
}

// TestOwnEvents: what a program reports is in an event file at its end, unless it writes event
// files itself; then each metric is shown once.
func TestOwnEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		theirs  []Scalar
		written int
		series  []string
	}{
		{"none", nil, 4, []string{"loss", "val_loss"}},
		{"TensorBoard's callback", []Scalar{{Tag: "epoch_loss", File: "train/x", Step: 1}, {
			Tag:  "epoch_lr",
			File: "train/x",
			Step: 1,
		}, {Tag: "evaluation_loss_vs_iterations", File: "validation/x", Step: 1}}, 0, []string{
			"loss", "train/epoch_lr", "val_loss",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := coordinate(t, true)
			own, theirs := &ownFile{}, tt.theirs
			files := EventFiles{Write: func(string) EventFile { return own }, Read: func(string) func() ([]Scalar, error) {
				return func() ([]Scalar, error) {
					found := theirs
					theirs = nil
					return found, nil
				}
			}}
			ctx, cancel := context.WithCancel(within(t))
			watching := make(chan struct{})
			go func() { c.WatchEvents(ctx, files); close(watching) }()
			defer func() { cancel(); <-watching }()
			for !c.files.events.watching.Load() && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			c.entered(ctx)
			c.files.events.await(ctx) // what the program wrote before is read
			c.do(func() {
				for step := range int64(2) {
					c.taskEvent(&clusterpb.TaskEvent{Run: 1, Attempt: 1, Task: "worker:0", Event: &clusterpb.TaskEvent_Report{
						Report: &clusterpb.Report{Step: step + 1, Metrics: map[string]float64{"loss": 0.5, "val_loss": 0.6}},
					}})
				}
				for i := range 2 {
					c.handle(lifecycle.ProgramExited{
						Run: 1, Attempt: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: i}, Exit: &clusterpb.Exited{},
					})
				}
			})
			c.files.events.await(ctx)
			var series []string
			c.do(func() {
				for _, s := range c.runs.current().status.GetSeries() {
					series = append(series, s.GetName())
				}
			})
			slices.Sort(series)
			own.mu.Lock()
			defer own.mu.Unlock()
			if len(own.written) != tt.written || own.removed {
				t.Errorf("written are %v, removed %v", own.written, own.removed)
			}
			if !slices.Equal(series, tt.series) {
				t.Errorf("shown are %v, want %v", series, tt.series)
			}
		})
	}
}

// TestOwnEventsGiveWay: the file that was written for a program is removed when it writes event
// files after all, and what both have is shown once.
func TestOwnEventsGiveWay(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	c.entered(within(t))
	own := &ownFile{}
	var theirs []Scalar
	r := eventReading{
		files: EventFiles{Write: func(string) EventFile { return own }, Read: func(string) func() ([]Scalar, error) {
			return func() ([]Scalar, error) { return theirs, nil }
		}},
	}
	read := func() {
		t.Helper()
		if err := c.readEvents(within(t), &r); err != nil {
			t.Fatal(err)
		}
	}
	report := func() {
		c.do(func() {
			c.taskEvent(&clusterpb.TaskEvent{Run: 1, Attempt: 1, Task: "worker:0", Event: &clusterpb.TaskEvent_Report{
				Report: &clusterpb.Report{Step: 1, Metrics: map[string]float64{"val_loss": 1}},
			}})
		})
	}
	report()
	read()
	if r.own != nil {
		t.Error("it does not wait for the program's own")
	}
	r.since = r.since.Add(-ownEventsAfter)
	read()
	if r.own == nil || len(own.written) != 1 || own.written[0].Tag != "val_loss" || own.written[0].WallTime == 0 {
		t.Fatalf("written are %v", own.written)
	}
	theirs = []Scalar{{Tag: "epoch_loss", File: "validation/x", Step: 1}}
	read()
	theirs = nil
	report()
	read()
	if !own.removed || r.own != nil || len(own.written) != 1 {
		t.Errorf("removed %v, written %v", own.removed, own.written)
	}
	c.do(func() {
		if p := c.runs.current().status; len(p.GetSeries()) != 1 || len(p.GetProgress().GetMetrics()) != 1 {
			t.Errorf("shown are %v", p.GetSeries())
		}
	})
}

package coordinator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// TestFollowCutOff: who follows a run that needs nobody, and that goes on after its driver
// died, hears of the one that follows it, not of a failure.
func TestFollowCutOff(t *testing.T) {
	t.Parallel()
	c := coordinate(t, false, func(cfg *Config) {
		cfg.Recovered.Saved, cfg.LastRun = []byte("null"), 1
		cfg.Begin = &clusterpb.StartRequest{
			Options: &clusterpb.RunOptions{MaxRestarts: 1}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT},
		}
		if err := os.MkdirAll(rundir.Dir(cfg.Dir, 1), 0o700); err != nil {
			t.Fatal(err)
		}
	})
	heard, enough := make(chan int32, 1), errors.New("enough")
	stream := &sentUntil[clusterpb.RunUpdate]{
		sent[clusterpb.RunUpdate]{ctx: within(t)}, func(u *clusterpb.RunUpdate) error {
			if u.GetStatus() == nil {
				return nil
			}
			heard <- u.GetStatus().GetId()
			return enough
		},
	}
	ended := make(chan error, 1)
	go func() {
		ended <- c.Control().(*control).Follow(&clusterpb.FollowRequest{Show: "all", Burst: 1}, stream)
	}()
	c.engine.answer <- nil
	c.up("0", 0)
	c.up("1", 0)
	if err := <-ended; !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if id := <-heard; id != 2 {
		t.Errorf("it hears of run %d", id)
	}
}

// TestStatusYetToBegin: what a cluster's directory held before its run began, or begins
// again, is not shown as its run.
func TestStatusYetToBegin(t *testing.T) {
	t.Parallel()
	again := &clusterpb.StartRequest{
		Options: &clusterpb.RunOptions{MaxRestarts: 1}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT},
	}
	once := &clusterpb.StartRequest{Program: again.GetProgram()}
	for name, tt := range map[string]struct {
		saved   []byte
		earlier int32
		begin   *clusterpb.StartRequest
		want    int32 // the run that is shown
	}{
		"another cluster's":              {nil, 1, once, 0},
		"another's, after a driver died": {[]byte("null"), 1, again, 0},
		"its own, which begins again":    {[]byte("null"), 0, again, 0},
		"its own, which clients begin":   {[]byte("null"), 0, nil, 1},
	} {
		c := coordinate(t, false, func(cfg *Config) {
			cfg.Recovered.Saved, cfg.LastRun, cfg.Earlier, cfg.Begin = tt.saved, 1, tt.earlier, tt.begin
		})
		st, err := c.Control().Status(within(t), &clusterpb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if st.GetRun().GetId() != tt.want || st.GetBeginsItself() != (tt.begin != nil) {
			t.Errorf("%s: the status shows %v", name, st.GetRun())
		}
	}
}

// TestBeginAfterClient: a run that a client begins in the moment of ready, before the
// cluster begins its own, is its run, and is not ended.
func TestBeginAfterClient(t *testing.T) {
	t.Parallel()
	own := &clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}
	for name, client := range map[string]func(*coordinated) error{
		"about to begin": func(c *coordinated) (err error) {
			c.do(func() { _, err = c.plan(own) })
			return err
		},
		"active": func(c *coordinated) error {
			_, err := c.startRun(within(t), own)
			return err
		},
	} {
		c := coordinate(t, true)
		if err := client(c); err != nil {
			t.Fatal(err)
		}
		if !c.startAutomatically(within(t), own, 0) {
			t.Errorf("%s: it takes the run for none", name)
		}
		c.do(func() {
			if c.lc.State() != lifecycle.Ready || c.runs.startError != "" {
				t.Errorf("%s: the cluster is %s: %s", name, c.lc.State(), c.runs.startError)
			}
		})
	}
}

// sentUntil is a sent whose client goes when its function says so.
type sentUntil[T any] struct {
	sent[T]
	until func(*T) error
}

func (s *sentUntil[T]) Send(u *T) error { return s.until(u) }

// TestRunGoesOn: a run that was cut off by its driver's death, and that a client began with
// --max-restarts, goes on as another while restarts are left, which the death counts among. Who
// follows it hears of that one. The cluster stays behind it.
func TestRunGoesOn(t *testing.T) {
	t.Parallel()
	start := &clusterpb.StartRequest{
		Options: &clusterpb.RunOptions{MaxRestarts: 3}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT},
	}
	for name, tt := range map[string]struct {
		startRun   int32
		record     *clusterpb.RunStatus
		checkpoint bool
		want       int32 // the run that is followed
		left       int32
		note       string
	}{
		"from the start": {
			1, &clusterpb.RunStatus{State: "running", MaxRestarts: 3, Restarts: 1, StartedUnix: 1}, false, 2, 1,
			"run 2 begins from the start: run 1 has left no checkpoint",
		},
		"from its checkpoint": {
			1, &clusterpb.RunStatus{State: "running", MaxRestarts: 3, StartedUnix: 1}, true, 2, 2,
			"run 1 was interrupted by the driver's death; run 2 continues from its last checkpoint",
		},
		"not recorded": {1, nil, false, 2, 2, "run 2 begins from the start: run 1 has left no checkpoint"},
		"no restart is left": {
			1, &clusterpb.RunStatus{State: "running", MaxRestarts: 3, Restarts: 3, StartedUnix: 1}, false, 1, 0, "",
		},
		"had ended": {
			1, &clusterpb.RunStatus{State: "failed", MaxRestarts: 3, StartedUnix: 1, EndedUnix: 2}, false, 1, 0, "",
		},
		"of an earlier run": {7, &clusterpb.RunStatus{State: "running", StartedUnix: 1}, false, 1, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := coordinate(t, false, func(cfg *Config) {
				cfg.Recovered = Recovered{Saved: []byte("null"), Start: start, StartRun: tt.startRun}
				cfg.LastRun = 1
				dir := rundir.Dir(cfg.Dir, 1)
				err := os.MkdirAll(filepath.Join(dir, "checkpoints"), 0o700)
				if tt.record != nil && err == nil {
					tt.record.Id, tt.record.ClusterId = 1, cfg.Authority.ID()
					err = results.WriteRun(dir, tt.record)
				}
				if tt.checkpoint && err == nil {
					err = os.WriteFile(filepath.Join(dir, "checkpoints", "w.keras"), []byte("w"), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			})
			enough := errors.New("enough")
			heard, notes := make(chan *clusterpb.RunStatus, 1), ""
			stream := &sentUntil[clusterpb.RunUpdate]{
				sent[clusterpb.RunUpdate]{ctx: within(t)}, func(u *clusterpb.RunUpdate) error {
					for _, n := range u.GetNotes() {
						if strings.HasPrefix(n.GetText(), "run ") { // not of the executors
							notes += n.GetText()
						}
					}
					if u.GetStatus() == nil || tt.note != "" && notes == "" {
						return nil
					}
					heard <- u.GetStatus()
					return enough
				},
			}
			ended := make(chan error, 1)
			go func() {
				ended <- c.Control().(*control).Follow(&clusterpb.FollowRequest{Run: 1, Show: "all", Burst: 1}, stream)
			}()
			c.engine.answer <- nil
			c.up("0", 0)
			c.up("1", 0)
			if err := <-ended; !errors.Is(err, enough) {
				t.Fatal(err)
			}
			if st := <-heard; st.GetId() != tt.want ||
				st.GetId() == 2 && (st.GetMaxRestarts() != tt.left || st.GetContinues() != 1) || notes != tt.note {
				t.Errorf("it hears of %v, and %q", st, notes)
			}
			c.do(func() {
				if c.lc.State() >= lifecycle.Releasing {
					t.Error("the cluster is given back")
				}
			})
		})
	}
}

// shaky is a spool whose file system has a checkpoint of run 1; its first fetches fail.
type shaky struct {
	faraway
	failures int
}

func (s *shaky) Files(folder string) ([]runfiles.File, error) {
	return []runfiles.File{{Path: folder + "/w"}}, nil
}

func (s *shaky) Fetch(context.Context, string) error {
	if s.failures--; s.failures >= 0 {
		return errors.New("no room")
	}
	return nil
}

// TestRunGoesOnLater: an interrupted run does not start from the beginning if its checkpoints cannot be
// read for a moment.
func TestRunGoesOnLater(t *testing.T) {
	t.Parallel()
	far := &shaky{faraway{folder: t.TempDir()}, 2}
	start := &clusterpb.StartRequest{
		Options: &clusterpb.RunOptions{MaxRestarts: 3}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT},
	}
	dir := rundir.Dir(far.folder, 1)
	c := coordinate(t, false, func(cfg *Config) {
		cfg.Spool, cfg.Dir = far, "hdfs://nn:8020/runs"
		cfg.Recovered = Recovered{Saved: []byte("null"), Start: start, StartRun: 1}
		cfg.LastRun = 1
		record := &clusterpb.RunStatus{Id: 1, ClusterId: cfg.Authority.ID(), State: "running", MaxRestarts: 3, StartedUnix: 1}
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "checkpoints"), 0o700),
			os.WriteFile(filepath.Join(dir, "checkpoints", "w"), nil, 0o600), results.WriteRun(dir, record)); err != nil {
			t.Fatal(err)
		}
	})
	c.engine.answer <- nil
	c.up("0", 0)
	c.up("1", 0)
	for ctx := within(t); ; time.Sleep(10 * time.Millisecond) {
		var st *clusterpb.RunStatus
		c.do(func() { st = c.runs.current().status })
		if st.GetId() == 2 && st.GetResumedFrom() == "run 1" {
			break
		}
		if st.GetId() == 2 || ctx.Err() != nil {
			t.Fatalf("after %v: %v", c.said(), st)
		}
	}
	if want := "cannot be continued yet: copy the checkpoints of run 1: no room"; !strings.Contains(c.said(), want) {
		t.Errorf("said was %q, not %q", c.said(), want)
	}
}

// TestCannotContinue: where an interrupted run cannot be continued, a cell that waits for it says why and what to do.
func TestCannotContinue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := coordinate(t, true, func(cfg *Config) {
		cfg.Dir = dir
		cfg.LastRun = 1
		record := &clusterpb.RunStatus{Id: 1, ClusterId: cfg.Authority.ID(), State: "running", StartedUnix: 1}
		if err := errors.Join(os.MkdirAll(rundir.Dir(dir, 1), 0o700),
			results.WriteRun(rundir.Dir(dir, 1), record)); err != nil {
			t.Fatal(err)
		}
	})
	const (
		why    = "copy the checkpoints of run 1: write to /x: no space left on device"
		remedy = "free space, or file entries (df -i), on that disk on the driver's host; then %tfcluster start --resume=1 " +
			"continues from its last checkpoint"
	)
	c.do(func() {
		c.cannotContinue(1, why)
		f := c.status(c.runs.find(1)).GetFailure()
		if f.GetRemedy() != remedy ||
			f.GetSummary() != "the cluster's driver died during the run, and it could not be continued: "+why {
			t.Errorf("failure is %v", f)
		}
	})
	if want := "could not be restarted: " + why + "; " + remedy; !strings.Contains(c.said(), want) {
		t.Errorf("said was %q, not %q", c.said(), want)
	}
}

// TestStartIsKept: what a later driver needs to restart a run is kept where the run may be restarted,
// and each restart is recorded at once.
func TestStartIsKept(t *testing.T) {
	t.Parallel()
	kept := make(chan int32, 8)
	c := coordinate(t, true, func(cfg *Config) {
		cfg.Hooks.SaveStart = func(run int32, req *clusterpb.StartRequest) {
			kept <- run*100 + req.GetOptions().GetMaxRestarts()
		}
	})
	c.running()
	if got := <-kept; got != 101 {
		t.Errorf("kept is %d", got)
	}
	c.do(func() { c.handle(cluster.Lost{Executor: "1", Attempt: 0, Cause: "preempted"}) })
	st, err := results.ReadRun(c.cfg.Dir, 1)
	if err != nil || st.GetRestarts() != 1 || st.GetMaxRestarts() != 1 || !results.Interrupted(st) {
		t.Errorf("recorded is %v: %v", st, err)
	}
}

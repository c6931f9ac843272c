package coordinator

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// faraway stands for a spool whose file system, which holds nothing, does not answer for a while.
type faraway struct {
	Spool
	folder  string
	asked   chan struct{}
	answers chan error // closed when it is there again
}

func (s *faraway) Folder() string             { return s.folder }
func (s *faraway) OnNotice(func(text string)) {}
func (s *faraway) Files(string) ([]runfiles.File, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return nil, <-s.answers
}
func (s *faraway) Flush(context.Context, time.Duration) error { return nil }

// TestResumeBesideTheLoop: while a start looks for checkpoints in a file system that is slow,
// the cluster answers others; a start that finds none can be made again.
func TestResumeBesideTheLoop(t *testing.T) {
	t.Parallel()
	far := &faraway{folder: t.TempDir(), asked: make(chan struct{}, 1), answers: make(chan error)}
	c := coordinate(t, true, func(cfg *Config) { cfg.Spool, cfg.Dir = far, "hdfs://nn:8020/runs" })
	c.do(func() {
		c.runs.records, c.runs.lastRun = append(c.runs.records,
			newRecord(&clusterpb.RunStatus{Id: 1, ClusterId: c.runs.cluster})), 1
	})
	req := &clusterpb.StartRequest{
		Options: &clusterpb.RunOptions{Resume: "last"}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT},
	}
	begun := make(chan error, 1)
	go func() {
		_, err := c.startRun(within(t), req)
		begun <- err
	}()
	<-far.asked
	answered := make(chan error, 1)
	go func() {
		_, err := c.Control().Status(within(t), &clusterpb.StatusRequest{})
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(deadline):
		t.Error("nobody else is answered")
	}
	close(far.answers)
	if err := <-begun; err == nil || !strings.HasPrefix(status.Convert(err).Message(),
		"--resume: no run in hdfs://nn:8020/runs has left a checkpoint; start without --resume, ") {
		t.Errorf("the start says %v", err)
	}
	req.Options.Resume = ""
	if _, err := c.startRun(within(t), req); err != nil {
		t.Errorf("the next start: %v", err)
	}
}

// TestShutdownBeforeRun: a cluster whose next run is being prepared is not released, unless by force.
func TestShutdownBeforeRun(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	var err error
	c.do(func() {
		_, err = c.plan(&clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}})
	})
	if err != nil {
		t.Fatal(err)
	}
	stream := &sent[clusterpb.ShutdownUpdate]{ctx: within(t), every: func(*clusterpb.ShutdownUpdate) {}}
	if err := c.Control().(*control).Shutdown(&clusterpb.ShutdownRequest{}, stream); err == nil ||
		!strings.Contains(err.Error(), "run 1 is about to begin") {
		t.Errorf("it answers %v", err)
	}
	if err := c.Control().(*control).Shutdown(&clusterpb.ShutdownRequest{Force: true}, stream); err != nil {
		t.Errorf("by force it answers %v", err)
	}
}

// TestReleasedBeforeItBegins: a run that was planned leaves no folder when the cluster is released before it begins.
func TestReleasedBeforeItBegins(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	ctx := within(t)
	plan, err := ask(ctx, &c.eventLoop, func() (*runPlan, error) {
		return c.plan(&clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.files.folders(ctx, plan); err != nil {
		t.Fatal(err)
	}
	c.do(func() { c.handle(lifecycle.ShutdownRequested{Reason: "a test"}) })
	if rec, err := c.beginRun(ctx, plan, 0); err == nil {
		t.Errorf("run %d begins in a cluster that is released", rec.status.GetId())
	}
	if left, err := os.ReadDir(c.files.Dir); err != nil || len(left) > 0 {
		t.Errorf("in the cluster's folder are %v: %v", left, err)
	}
}

// TestFolderOfAnotherCluster: a start that fails removes no folder that was there before: it may be another cluster's
// run in a directory that both use.
func TestFolderOfAnotherCluster(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	theirs := filepath.Join(c.files.Dir, "run-001", "checkpoints", "step-7")
	if err := os.MkdirAll(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	script := &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}
	plan, err := ask(within(t), &c.eventLoop, func() (*runPlan, error) {
		return c.plan(&clusterpb.StartRequest{Program: script})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.files.folders(within(t), plan); err != nil {
		t.Fatal(err)
	}
	c.discard(plan)
	c.do(func() { c.runs.planning = false })
	resume := &clusterpb.RunOptions{Resume: "last"}
	if _, err := c.startRun(within(t), &clusterpb.StartRequest{Program: script, Options: resume}); err == nil {
		t.Error("a run resumes without a checkpoint")
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}

// TestStartSaysWhatItWaitsFor: a start waits for an executor that was lost, and the status of its
// run and of the cluster names that executor and the engine's reason.
func TestStartSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	c.engine.events <- cluster.Lost{Executor: "1", Cause: "the Spark executor ended"}
	c.engine.events <- cluster.Pending{Executor: "1", Why: "3 tasks of this session's own Spark jobs hold slots"}
	for handled, ctx := false, within(t); !handled; { // a start before these events would wait for nothing
		c.do(func() { handled = strings.Contains(c.lc.Executor("1").Why, "hold slots") })
		if ctx.Err() != nil {
			t.Fatal("the events were not handled")
		}
	}
	stream := &sent[clusterpb.StartUpdate]{ctx: within(t)}
	const want = "worker:1 on host1: 3 tasks of this session's own Spark jobs hold slots"
	back, seen := false, 0
	stream.every = func(u *clusterpb.StartUpdate) {
		switch waits := u.GetRun().GetWaiting(); {
		case waits == want && !back:
			back = true
			seen++
			st, err := c.Control().(*control).Status(stream.ctx, nil)
			if err != nil || st.GetRun().GetWaiting() != want {
				t.Errorf("the status says %q: %v", st.GetRun().GetWaiting(), err)
			}
			go func() { c.up("1", 1) }()
		case back && waits == "":
			c.post(func() { c.handle(lifecycle.PortPrepared{Exec: "0", Run: 1, Attempt: 1, Err: "no port is free"}) })
		}
	}
	req := &clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}
	if err := c.Control().(*control).Start(req, stream); err != nil {
		t.Fatal(err)
	}
	if seen != 1 {
		t.Error("the start did not say what it waits for")
	}
}

// TestStartBehindTakeover: a start that comes before the agents have joined a new driver waits for
// them; one of a reservation that fails says why.
func TestStartBehindTakeover(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		c := coordinate(t, false, func(cfg *Config) { cfg.Recovered.Saved, cfg.LastRun = []byte("null"), 2 })
		stream := &sent[clusterpb.StartUpdate]{ctx: within(t)}
		waited := false
		stream.every = func(u *clusterpb.StartUpdate) {
			run := u.GetRun()
			switch {
			case strings.HasPrefix(run.GetWaiting(), "0 of 2 executors are ready") && !waited:
				waited = true
				if run.GetId() != 3 || run.GetState() != "starting" {
					t.Errorf("what waits is shown as %v", run)
				}
				c.engine.answer <- nil
				if fails {
					c.post(func() { c.handle(lifecycle.TimerFired{Name: "reserve"}) })
					return
				}
				go func() { c.up("0", 0); c.up("1", 0) }()
			case run.GetWaiting() == "":
				c.post(func() { c.handle(lifecycle.PortPrepared{Exec: "0", Run: 3, Attempt: 1, Err: "no port is free"}) })
			}
		}
		err := c.Control().(*control).Start(
			&clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}, stream)
		if failed := err != nil && strings.Contains(err.Error(), "not reserved within"); !waited || failed != fails {
			t.Errorf("the start waited: %v; it ends with %v", waited, err)
		}
	}
}

package coordinator

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

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
		c.runs.records, c.runs.lastRun = append(c.runs.records, newRecord(&clusterpb.RunStatus{Id: 1, ClusterId: c.runs.cluster})), 1
	})
	req := &clusterpb.StartRequest{Options: &clusterpb.RunOptions{Resume: "last"}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}
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
	if err := <-begun; err == nil || !strings.HasPrefix(status.Convert(err).Message(), "--resume: no run in hdfs://nn:8020/runs has left a checkpoint; start without --resume, ") {
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
	if err := c.Control().(*control).Shutdown(&clusterpb.ShutdownRequest{}, stream); err == nil || !strings.Contains(err.Error(), "run 1 is about to begin") {
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

// TestFolderOfAnotherCluster: a start that fails removes no folder that was there before: it may be another cluster's run in
// a directory that both use.
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

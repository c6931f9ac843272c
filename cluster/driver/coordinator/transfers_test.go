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
)

// ended is a cluster of executors with disks of their own whose run 1 has failed, and
// whose files are to come.
func ended(t *testing.T) *coordinated {
	t.Helper()
	c := coordinate(t, true)
	c.do(func() {
		for _, h := range c.execs.hellos {
			h.OwnDisk = true
		}
	})
	c.entered(within(t))
	c.do(func() {
		for i := range 2 {
			c.handle(lifecycle.ProgramExited{
				Run: 1, Attempt: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: i}, Exit: &clusterpb.Exited{Code: 1},
			})
		}
		if c.lc.Run().State != lifecycle.RunFailed || !c.filesPending(1) {
			t.Errorf("the run is %s, and owed is %v", c.lc.Run().State, c.execs.pendingFiles)
		}
	})
	return c
}

func (c *coordinated) sent(id cluster.ExecutorID, m *clusterpb.FilesSent) {
	m.Run, m.Attempt, m.Task = 1, 1, "worker:"+string(id)
	c.do(func() {
		c.agentMessage(c.execs.agents[id], &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_FilesSent{FilesSent: m}})
	})
}

func (c *coordinated) said() string {
	var text []string
	c.do(func() {
		for _, n := range c.notes.since(0) {
			text = append(text, n.GetText())
		}
	})
	return strings.Join(text, "\n")
}

// TestResumeWaitsForFiles: checkpoints on their way are what start --resume takes up.
func TestResumeWaitsForFiles(t *testing.T) {
	t.Parallel()
	c := ended(t)
	resumed := make(chan error, 1)
	ctx := within(t)
	go func() {
		_, err := c.startRun(ctx, &clusterpb.StartRequest{
			Options: &clusterpb.RunOptions{Resume: "last"}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT},
		})
		resumed <- err
	}()
	c.sent("1", &clusterpb.FilesSent{})
	if err := c.awaitPending(ctx, 1, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a short wait for them ends with %v", err)
	}
	select {
	case err := <-resumed:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(50 * time.Millisecond): // a start that does not wait finds no checkpoint
	}
	part := filepath.Join(rundir.Dir(c.cfg.Dir, 1), ".part-0")
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(rundir.Dir(c.cfg.Dir, 1), "checkpoints", "w"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.sent("0", &clusterpb.FilesSent{Missing: []string{"a", "b", "c", "d"}, Error: "no way"})
	if err := errors.Join(<-resumed, c.awaitPending(ctx, 1, deadline)); err != nil {
		t.Error(err)
	}
	if want := "run 1: worker:0 on host0 has given up sending a, b, c and 1 more to the driver, " +
		"so they are missing below --dir: no way"; !strings.Contains(c.said(), want) {
		t.Errorf("said was %q, not %q", c.said(), want)
	}
}

// TestSweptWhenNothingIsToCome: what never became whole is removed.
func TestSweptWhenNothingIsToCome(t *testing.T) {
	t.Parallel()
	c := ended(t)
	part := filepath.Join(rundir.Dir(c.cfg.Dir, 1), ".part-0")
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.sent("0", &clusterpb.FilesSent{})
	c.do(func() { c.handle(cluster.Lost{Executor: "1", Attempt: 0, Cause: "its host is gone"}) })
	if want := "run 1: the executor of worker:1 was lost before it had sent all files"; !strings.Contains(c.said(), want) {
		t.Errorf("said was %q, not %q", c.said(), want)
	}
	for end := time.Now().Add(deadline); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(part); err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it stays")
		}
	}
}

// TestRunGoneWhileAStartWaits: the end of a run's last task is recorded and its incomplete files are
// removed, also if the next run starts at that moment.
func TestRunGoneWhileAStartWaits(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	ctx := within(t)
	c.entered(ctx)
	exit := func(worker int, e *clusterpb.Exited) {
		c.do(func() {
			c.handle(
				lifecycle.ProgramExited{Run: 1, Attempt: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: worker}, Exit: e})
		})
	}
	part := filepath.Join(rundir.Dir(c.cfg.Dir, 1), ".part-0")
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exit(0, &clusterpb.Exited{Code: 1})
	if _, err := c.startRun(ctx,
		&clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}); err != nil {
		t.Fatal(err)
	}
	exit(1, &clusterpb.Exited{Signal: 15})
	c.do(func() {
		if now := c.lc.Run().Spec.ID; now != 2 {
			t.Errorf("run %d is active", now)
		}
	})
	st, err := results.ReadRun(c.cfg.Dir, 1)
	if err != nil || len(st.GetTasks()) != 2 || st.GetTasks()[1].GetState() != "ended" ||
		st.GetTasks()[1].GetSignal() != 15 {
		t.Errorf("the record has %v: %v", st.GetTasks(), err)
	}
	for end := time.Now().Add(deadline); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(part); err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("an incomplete file stays")
		}
	}
}

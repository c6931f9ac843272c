package clustertest

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
)

func testKilled(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script("import sys\nprint('last words', file=sys.stderr)\n" + forever)
	r.Line("[worker:1] here")
	old := int(c.Task("worker:0").GetPid())
	c.Signal("worker:1", syscall.SIGKILL)
	st := r.Wait()
	f := st.GetFailure()
	if f.GetTask() != "worker:1" || f.GetSignal() != 9 || f.GetExitCode() != 137 || f.GetKind() == "out_of_memory" {
		t.Fatalf("failure is %v", f)
	}
	if !strings.Contains(strings.Join(f.GetLines(), "\n"), "last words") {
		t.Errorf("last stderr lines are %q", f.GetLines())
	}
	if st := c.Script(hello).Wait(); st.GetState() != "finished" {
		t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
	}
	if state.ProcessOf(old).Alive() {
		t.Errorf("process %d of the failed run is alive", old)
	}
}

func testAgentKilled(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script(forever)
	r.Line("[worker:1] here")
	task := int(c.Task("worker:1").GetPid())
	agent := int(c.executor("worker:1").GetPid())
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f := r.Wait().GetFailure()
	if f.GetTask() != "worker:1" || f.GetKind() != "lost" {
		t.Errorf("failure is %v", f)
	}
	WaitFor(t, "the end of the lost agent's task", func() bool { return !state.ProcessOf(task).Alive() })
	if st := c.Script(hello).Wait(); st.GetState() != "finished" {
		t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
	}
	if now := int(c.executor("worker:1").GetPid()); now == agent {
		t.Errorf("the agent was not replaced")
	}
}

func testResetHard(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	r := c.Script(forever)
	r.Line("here")
	task, agent := int(c.Task("worker:0").GetPid()), c.executor("worker:0").GetPid()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	s, err := c.Reset(ctx, &clusterpb.ResetRequest{Hard: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		u, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if u.GetFailure() != nil {
			t.Fatal(u.GetFailure())
		}
		if u.GetDone() {
			break
		}
	}
	if st := r.Wait(); st.GetState() != "stopped" {
		t.Errorf("the run is %s", st.GetState())
	}
	if state.ProcessOf(task).Alive() {
		t.Errorf("the task is alive after the reset")
	}
	if c.executor("worker:0").GetPid() == agent {
		t.Errorf("the agent is the same")
	}
	if st := c.Script(hello).Wait(); st.GetState() != "finished" {
		t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
	}
}

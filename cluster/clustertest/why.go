package clustertest

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// testWhy asks why a run hangs in which one task sleeps and two wait for it; then the agent of the one is killed while
// the question is being answered.
func testWhy(t *testing.T, h Harness) {
	c := h.Start(t, "worker=3")
	r := c.Script(`
import time, tfcluster
ctx = tfcluster.context()
def load_batch():
    print("stalled", flush=True)
    time.sleep(600)
for step in range(1, 6):
    ctx.report(step=step)
    ctx.barrier("step")
if ctx.worker_num == 1:
    load_batch()
ctx.barrier("next")
`)
	r.Line("stalled")
	var got *clusterpb.WhyReply
	for end := time.Now().Add(Deadline); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if got, err = c.Verdict(); err != nil {
			t.Fatalf("why: %v", err)
		}
		if len(got.GetCulprits()) > 0 || time.Now().After(end) {
			break
		}
	}
	if !slices.Equal(got.GetCulprits(), []string{"worker:1"}) || !got.GetCertain() ||
		!strings.Contains(got.GetText(), "sleeping; 0, 2 wait for it in the barrier of step 6") {
		t.Errorf("why: %v", got)
	}
	if x := got.GetTasks()[1]; len(got.GetTasks()) != 3 || x.GetClass() != "lock" ||
		!strings.HasPrefix(x.GetWhere(), "load_batch (") || x.GetStep() != 5 || x.GetHost() == "" {
		t.Errorf("the tasks are %v", got.GetTasks())
	}
	agent := int(c.executor("worker:1").GetPid())
	if err := syscall.Kill(agent, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(300*time.Millisecond, func() { _ = syscall.Kill(agent, syscall.SIGKILL) }) // while it is asked
	defer kill.Stop()
	if got, err := c.Verdict(); err != nil || got.GetCertain() && !slices.Equal(got.GetCulprits(), []string{"worker:1"}) ||
		strings.Contains(got.GetText(), "\n") {
		t.Errorf("why while an agent is killed: %v, %v", got, err)
	}
	if f := r.Wait().GetFailure(); f.GetTask() != "worker:1" || f.GetKind() != "lost" {
		t.Errorf("failure is %v", f)
	}
	if got, err := c.Verdict(); err != nil || !strings.Contains(got.GetText(), "no run is active: run 1 failed") ||
		!slices.Equal(got.GetCulprits(), []string{"worker:1"}) {
		t.Errorf("why of the run that failed: %v, %v", got, err)
	}
}

// Verdict asks which tasks hold the active run up.
func (c *Cluster) Verdict() (*clusterpb.WhyReply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	return c.Client.Why(ctx, &clusterpb.WhyRequest{})
}

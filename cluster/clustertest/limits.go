package clustertest

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func testStop(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	r := c.Script(`
import time
try:
    print("here", flush=True)
    time.sleep(600)
finally:
    print("saved", flush=True)
`)
	r.Line("here")
	if _, err := c.Client.Stop(ctx, &clusterpb.StopRequest{GraceMillis: 30_000}); err != nil {
		t.Fatal(err)
	}
	if st := r.Wait(); st.GetState() != "stopped" || !strings.Contains(r.Text(), "saved") {
		t.Errorf("the run is %s; its lines: %s", st.GetState(), r.Text())
	}
	r = c.Script("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + forever)
	r.Line("here")
	for _, grace := range []int64{60_000, 0} {
		if _, err := c.Client.Stop(ctx, &clusterpb.StopRequest{GraceMillis: grace}); err != nil {
			t.Fatal(err)
		}
	}
	if st := r.Wait(); st.GetState() != "stopped" {
		t.Errorf("the run that ignores SIGTERM is %s", st.GetState())
	}
}

func testRunTimeout(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	r := c.Script(forever, func(s *clusterpb.StartRequest) { s.Options.RunTimeoutMillis = 3000 })
	if f := r.Wait().GetFailure(); f.GetKind() != "run_timeout" || f.GetExitCode() != 124 {
		t.Errorf("failure is %v", f)
	}
}

func testStepTimeout(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	r := c.Script("import tfcluster\nctx = tfcluster.context()\nctx.report(step=1, loss=0.5)\n"+
		forever, func(s *clusterpb.StartRequest) { s.Options.StepTimeoutMillis = 1500 })
	st := r.Wait()
	if f := st.GetFailure(); f.GetKind() != "step_timeout" {
		t.Errorf("failure is %v", f)
	}
	if !strings.Contains(r.Text(), "most recent call first") || !strings.Contains(r.Text(), "in <module>") {
		t.Errorf("the task did not write its stack:\n%s", r.Text())
	}
	if p := st.GetProgress(); p.GetStep() != 1 || p.GetMetrics()["loss"] != 0.5 {
		t.Errorf("progress is %v", p)
	}
}

const checkpointing = `
import json, os, pathlib, sys, time, tfcluster
ctx = tfcluster.context()
mark = pathlib.Path(ctx.checkpoint_dir) / f"mark-{ctx.task_index}"
seen = int(mark.read_text()) if mark.exists() else 0
print("seen", seen, "times, port", ctx.cluster_spec["worker"][ctx.task_index], flush=True)
mark.write_text(str(seen + 1))
`

// savesSets saves the first set of per-rank checkpoints, and worker 1 its part of a second one, which a
// restart leaves out.
const savesSets = checkpointing + `
root = mark.parent
parts = sorted(str(p.relative_to(root)) for p in root.glob("step-*/*"))
print("sets", parts, sorted(p.name for p in root.glob("step-*")))
for step in range(1, 2 + (ctx.task_index if seen == 0 else 0)):
    (root / f"step-{step}").mkdir(exist_ok=True)
    (root / f"step-{step}" / f"rank-{ctx.task_index}").write_text(str(step))
ctx.barrier("saved")
if seen == 0:
`

func testRestart(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script(savesSets+indent(forever), func(s *clusterpb.StartRequest) { s.Options.MaxRestarts = 1 })
	r.Line("[worker:1] here")
	c.Signal("worker:1", syscall.SIGKILL)
	st := r.Wait()
	if st.GetState() != "finished" || st.GetRestarts() != 1 {
		t.Fatalf("the run is %s after %d restarts: %v\n%s", st.GetState(), st.GetRestarts(), st.GetFailure(), r.Text())
	}
	if !strings.Contains(r.Text(), "[worker:0] seen 1 times") || !strings.Contains(r.Text(), "[worker:1] seen 1 times") {
		t.Errorf("the checkpoints were not found:\n%s", r.Text())
	}
	for _, worker := range []string{"0", "1"} {
		if !strings.Contains(r.Text(), "[worker:"+worker+"] sets ['step-1/rank-0', 'step-1/rank-1'] ['step-1']") {
			t.Errorf("worker %s does not continue from what both have saved:\n%s", worker, r.Text())
		}
	}
	for _, want := range []string{
		"restart 1 of 1", "checkpoint step-2 is left out: it has 1 of 2 files rank-#; they are now in run-001/torn/1",
	} {
		if !strings.Contains(r.Notes(), want) {
			t.Errorf("%q is not noted: %s", want, r.Notes())
		}
	}
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

func testResume(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	c.Script(checkpointing).Wait()
	r := c.Script(checkpointing)
	if r.Wait(); !strings.Contains(r.Text(), "seen 0 times") {
		t.Errorf("a new run sees an older one's checkpoints:\n%s", r.Text())
	}
	r = c.Script(checkpointing, func(s *clusterpb.StartRequest) { s.Options.Resume = "1" })
	if r.Wait(); !strings.Contains(r.Text(), "seen 1 times") {
		t.Errorf("--resume=1 does not:\n%s", r.Text())
	}
	r = c.Script(checkpointing, func(s *clusterpb.StartRequest) { s.Options.Resume = "last" })
	if r.Wait(); !strings.Contains(r.Text(), "seen 2 times") {
		t.Errorf("--resume does not use the last run:\n%s", r.Text())
	}
}

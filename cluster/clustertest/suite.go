package clustertest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Suite is what every backend passes. Its programs need no TensorFlow: what is
// tested is the cluster.
func Suite(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"lines of every task arrive and the run finishes", testFinish},
		{"a start again takes new ports and new processes", testAgain},
		{"an exception is the cause, its peers are ended", testException},
		{"an exit code is told", testExitCode},
		{"a killed task is the cause and the next start goes on", testKilled},
		{"a start whose program fails at once tells why", testEarlyFailure},
		{"ps and joined workers are ended after the chief", testParameterServers},
		{"a stop gives time, a second kills", testStop},
		{"a run's timeout ends it", testRunTimeout},
		{"no step for too long ends it", testStepTimeout},
		{"a gang is restarted on new ports with its checkpoints", testRestart},
		{"resume takes an older run's checkpoints", testResume},
		{"a lost agent is replaced", testAgentKilled},
		{"reset hard gives new agents", testResetHard},
		{"a flood of lines is kept whole", testFlood},
		{"lines of any shape come through", testOddLines},
		{"a driver that died is replaced and its tasks are ended", testDriverKilled},
		{"an idle cluster releases itself", testIdle},
		{"a barrier waits for all", testBarrier},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, h)
		})
	}
}

const hello = `
import json, os, sys
cfg = json.loads(os.environ["TF_CONFIG"])
print("out of", cfg["task"]["type"], cfg["task"]["index"], "at", cfg["cluster"][cfg["task"]["type"]][cfg["task"]["index"]])
print("err of", cfg["task"]["index"], file=sys.stderr)
`

// forever ends only by a signal; it says when it is there.
const forever = `
import time
print("here", flush=True)
while True:
    time.sleep(0.05)
`

func testFinish(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script(hello)
	st := r.Wait()
	if st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v", st.GetState(), st.GetFailure())
	}
	for _, want := range []string{"[worker:0] out of worker 0 at", "[worker:1] out of worker 1 at", "[worker:0] err of 0", "[worker:1] err of 1"} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no line %q in\n%s", want, r.Text())
		}
	}
}

var portOf = regexp.MustCompile(`at \S+:(\d+)`)

func testAgain(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	var ports []string
	for run := range 3 {
		r := c.Script(hello)
		if st := r.Wait(); st.GetState() != "finished" || int(st.GetId()) != run+1 {
			t.Fatalf("run %d is %s: %v", st.GetId(), st.GetState(), st.GetFailure())
		}
		for _, m := range portOf.FindAllStringSubmatch(r.Text(), -1) {
			if slices.Contains(ports, m[1]) {
				t.Errorf("port %s is used again", m[1])
			}
			ports = append(ports, m[1])
		}
	}
	if len(ports) != 6 {
		t.Errorf("6 ports were to be told, got %v", ports)
	}
}

func testException(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script(`
import json, os, sys, time
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    time.sleep(0.3)
    print("about to fail", file=sys.stderr)
    raise ValueError("the learning rate is a fish")
` + forever)
	st := r.Wait()
	f := st.GetFailure()
	if st.GetState() != "failed" || f.GetTask() != "worker:1" || f.GetExitCode() != 1 {
		t.Fatalf("the run is %s: %v", st.GetState(), f)
	}
	if !strings.Contains(f.GetSummary(), "ValueError: the learning rate is a fish") {
		t.Errorf("summary %q does not tell the exception", f.GetSummary())
	}
	if !strings.Contains(strings.Join(f.GetLines(), "\n"), "about to fail") {
		t.Errorf("last stderr lines are %q", f.GetLines())
	}
	pid := int(c.Task("worker:0").GetPid())
	WaitFor(t, "the peer's end", func() bool { return !cluster.ProcessOf(pid).Alive() })
}

func testExitCode(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	_, f := c.TryScript("import sys, time\ntime.sleep(0.2)\nsys.exit(17)")
	if f == nil {
		f = c.follow(&clusterpb.RunStatus{Id: 1}).Wait().GetFailure()
	}
	if f.GetExitCode() != 17 || f.GetTask() != "worker:0" || !strings.Contains(f.GetSummary(), "17") {
		t.Errorf("failure is %v", f)
	}
}

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
	if cluster.ProcessOf(old).Alive() {
		t.Errorf("process %d of the failed run is alive", old)
	}
}

func testEarlyFailure(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	r, f := c.TryScript("import no_such_module_of_anyone")
	if f == nil { // it entered before it failed
		f = r.Wait().GetFailure()
	}
	if !strings.Contains(f.GetSummary(), "ModuleNotFoundError") {
		t.Errorf("failure is %v", f)
	}
}

func testParameterServers(t *testing.T, h Harness) {
	c := h.Start(t, "chief=1 worker=1 ps=1")
	r := c.Script(`
import json, os, time
role = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
print("I am", role, flush=True)
time.sleep(0.3)
while role == "ps":
    time.sleep(0.05)
`)
	if st := r.Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v", st.GetState(), st.GetFailure())
	}
	ps := int(c.Task("ps:0").GetPid())
	WaitFor(t, "the parameter server's end", func() bool { return !cluster.ProcessOf(ps).Alive() })
}

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
	r := c.Script(forever, func(s *clusterpb.StartRequest) { s.RunTimeoutMillis = 1000 })
	if f := r.Wait().GetFailure(); f.GetKind() != "run_timeout" || f.GetExitCode() != 124 {
		t.Errorf("failure is %v", f)
	}
}

func testStepTimeout(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	r := c.Script("import tfcluster\nctx = tfcluster.context()\nctx.report(step=1, loss=0.5)\n"+forever, func(s *clusterpb.StartRequest) { s.StepTimeoutMillis = 1500 })
	st := r.Wait()
	if f := st.GetFailure(); f.GetKind() != "step_timeout" {
		t.Errorf("failure is %v", f)
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

func testRestart(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script(checkpointing+"ctx.barrier('saved')\nif seen == 0:\n"+indent(forever), func(s *clusterpb.StartRequest) { s.MaxRestarts = 1 })
	r.Line("[worker:1] here")
	c.Signal("worker:1", syscall.SIGKILL)
	st := r.Wait()
	if st.GetState() != "finished" || st.GetRestarts() != 1 {
		t.Fatalf("the run is %s after %d restarts: %v\n%s", st.GetState(), st.GetRestarts(), st.GetFailure(), r.Text())
	}
	if !strings.Contains(r.Text(), "[worker:0] seen 1 times") || !strings.Contains(r.Text(), "[worker:1] seen 1 times") {
		t.Errorf("the checkpoints were not found:\n%s", r.Text())
	}
	if !strings.Contains(r.Notes(), "restart 1 of 1") {
		t.Errorf("the restart was not said: %s", r.Notes())
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
	r = c.Script(checkpointing, func(s *clusterpb.StartRequest) { s.Resume = "1" })
	if r.Wait(); !strings.Contains(r.Text(), "seen 1 times") {
		t.Errorf("--resume=1 does not:\n%s", r.Text())
	}
	r = c.Script(checkpointing, func(s *clusterpb.StartRequest) { s.Resume = "last" })
	if r.Wait(); !strings.Contains(r.Text(), "seen 2 times") {
		t.Errorf("--resume does not take the last:\n%s", r.Text())
	}
}

func (c *Cluster) executor(task string) *clusterpb.ExecutorStatus {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		c.T.Fatalf("status: %v", err)
	}
	for _, x := range st.GetExecutors() {
		if x.GetTask() == task {
			return x
		}
	}
	c.T.Fatalf("no executor of %s", task)
	return nil
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
	WaitFor(t, "the end of the lost agent's task", func() bool { return !cluster.ProcessOf(task).Alive() })
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
	if cluster.ProcessOf(task).Alive() {
		t.Errorf("the task is alive after the reset")
	}
	if c.executor("worker:0").GetPid() == agent {
		t.Errorf("the agent is the same")
	}
	if st := c.Script(hello).Wait(); st.GetState() != "finished" {
		t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
	}
}

func testFlood(t *testing.T, h Harness) {
	const n = 50_000
	c := h.Start(t, "worker=1")
	r := c.Script(fmt.Sprintf("for i in range(%d):\n    print('line', i)\n", n))
	if st := r.Wait(); st.GetState() != "finished" || st.GetLines() != n {
		t.Fatalf("the run is %s with %d lines: %v", st.GetState(), st.GetLines(), st.GetFailure())
	}
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	s, err := c.Client.Logs(ctx, &clusterpb.LogsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	for {
		u, err := s.Recv()
		if err != nil {
			break
		}
		for _, l := range u.GetLines() {
			if want := fmt.Sprintf("line %d", next); l.GetText() != want {
				t.Fatalf("line %d is %q", next, l.GetText())
			}
			next++
		}
	}
	if next != n {
		t.Errorf("%d of %d lines are in the store", next, n)
	}
}

func testOddLines(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	r := c.Script(`
import os, sys
os.write(1, b"caf\xc3\xa9 \xff\n")
os.write(1, b"a\rb\rbar done\n")
os.write(1, b"x" * 300_000 + b"\n")
os.write(2, b"no end")
`)
	if st := r.Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v", st.GetState(), st.GetFailure())
	}
	for _, want := range []string{"[worker:0] café \uFFFD", "[worker:0] bar done", strings.Repeat("x", 300_000), "[worker:0] no end"} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no line %.40q", want)
		}
	}
}

func testDriverKilled(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script(forever)
	r.Line("[worker:1] here")
	task, agent := int(c.Task("worker:0").GetPid()), c.executor("worker:0").GetPid()
	s, err := cluster.LoadState(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Driver.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	WaitFor(t, "the tasks' end without a driver", func() bool { return !cluster.ProcessOf(task).Alive() })
	if !cluster.ProcessOf(int(agent)).Alive() {
		t.Errorf("the agent did not wait for another driver")
	}
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	client, err := cluster.Recover(ctx, h.Program, c.Name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Client = client
	c.Ready()
	if now := c.executor("worker:0").GetPid(); now != agent {
		t.Errorf("the agent is another: %d, was %d", now, agent)
	}
	hist, err := c.History(ctx, &clusterpb.HistoryRequest{})
	if err != nil || len(hist.GetRuns()) != 1 || !strings.Contains(hist.GetRuns()[0].GetFailure().GetSummary(), "driver died") {
		t.Errorf("history: %v, %v", hist, err)
	}
	if st := c.Script(hello).Wait(); st.GetState() != "finished" || st.GetId() != 2 {
		t.Errorf("run %d is %s: %v", st.GetId(), st.GetState(), st.GetFailure())
	}
}

func testIdle(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1", func(r *clusterpb.ReserveRequest) { r.IdleMillis = 1000 })
	agent := int(c.executor("worker:0").GetPid())
	WaitFor(t, "the idle cluster's release", func() bool { return !c.alive() })
	WaitFor(t, "its agent's end", func() bool { return !cluster.ProcessOf(agent).Alive() })
}

func testBarrier(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script(`
import time, tfcluster
ctx = tfcluster.context()
time.sleep(0.5 * ctx.task_index)
began = time.time()
ctx.barrier("here")
print("waited", ctx.task_index, round(time.time() - began, 2), flush=True)
`)
	if st := r.Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	if !strings.Contains(r.Text(), "waited 0") || !strings.Contains(r.Text(), "waited 1") {
		t.Errorf("lines: %s", r.Text())
	}
}

package clustertest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Executors matches the cases of Suite that may differ between two modes of one engine: a run that finishes, and
// executors that are lost, recovered or released.
var Executors = regexp.MustCompile(
	"^lines of every task|lost agent|reset hard|driver that died|concurrent recoveries|cancelled|idle")

// smoke matches the cases of Smoke.
var smoke = regexp.MustCompile("^(lines of every task|an exception is|a killed task|a stop has|a gang is restarted|" +
	"a driver that died|tasks make collective)")

// Smoke runs the cases that show that a backend works: a run that finishes, fails, is killed, stopped or restarted,
// the death of the driver, and collective calls.
func Smoke(t *testing.T, h Harness) { Cases(t, h, smoke) }

// Suite runs the cases on a backend. Their programs need no TensorFlow. Cases that no engine can affect run only with
// Harness.AnyEngine.
func Suite(t *testing.T, h Harness) { Cases(t, h, regexp.MustCompile("")) }

// suiteCase is a case of Suite.
type suiteCase struct {
	name string
	test func(*testing.T, Harness)
	// anyEngine is set if the case is about the driver, an agent and its tasks, which are the same on every engine.
	anyEngine bool
}

// cases are those of Suite, in their order.
var cases = []suiteCase{
	{"lines of every task arrive and the run finishes", testFinish, false},
	{"another start uses new ports and new processes", testAgain, false},
	{"an exception is the cause, and the peers are stopped", testException, false},
	{"an exit code is reported", testExitCode, true},
	{"a killed task is the cause, and the next start works", testKilled, false},
	{"a start reports why its program failed at once", testEarlyFailure, true},
	{"ps and joined workers are stopped after the chief", testParameterServers, true},
	{"a stop has a grace period, a second stop kills", testStop, false},
	{"a stop is at the same step on every task", testAgreedStep, true},
	{"a task that a stop cannot reach is killed after its peers", testUnreachable, true},
	{"a run's timeout ends it", testRunTimeout, true},
	{"a step's timeout ends it", testStepTimeout, true},
	{"stacks are of every task, whatever it does", testStacks, false},
	{"why names the task that holds the others up", testWhy, true},
	{"a gang is restarted on new ports with its checkpoints", testRestart, false},
	{"resume uses an older run's checkpoints", testResume, false},
	{"a lost agent is replaced", testAgentKilled, false},
	{"reset hard starts new agents", testResetHard, false},
	{"all lines of a flood are kept", testFlood, false},
	{"lines of any shape are shown", testOddLines, true},
	{"a driver that died is replaced, and its tasks are stopped", testDriverKilled, false},
	{"concurrent recoveries start one driver", testTwoRecover, false},
	{"a name is used once", testOneName, true},
	{"a cancelled reservation leaves nothing", testCancelled, false},
	{"an idle cluster releases itself", testIdle, false},
	{"a barrier waits for all", testBarrier, true},
	{"tasks make collective calls", testCollective, false},
	{"a cluster has no runs of earlier ones unless requested", testSameDirectory, false},
	{"what tasks ran with is recorded, and differences are noted", testManifest, false},
	{"every task has a result, the run's result is that of worker:0", testResults, true},
}

// Cases runs the cases of Suite whose names match.
func Cases(t *testing.T, h Harness, names *regexp.Regexp) {
	for _, c := range cases {
		if !names.MatchString(c.name) || c.anyEngine && !h.AnyEngine {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, h)
		})
	}
}

const hello = `
import json, os, sys
cfg = json.loads(os.environ["TF_CONFIG"])
role, index = cfg["task"]["type"], cfg["task"]["index"]
print("out of", role, index, "at", cfg["cluster"][role][index])
print("err of", index, file=sys.stderr)
`

// forever runs until it is killed, and prints a line after its start.
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
	for _, want := range []string{
		"[worker:0] out of worker 0 at", "[worker:1] out of worker 1 at", "[worker:0] err of 0", "[worker:1] err of 1",
	} {
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
		t.Errorf("got the ports %v, want 6", ports)
	}
}

func testException(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	_, _ = c.TryScript(`
import json, os, sys, time
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    time.sleep(0.3)
    print("about to fail", file=sys.stderr)
    raise ValueError("the learning rate is a fish")
` + forever) // the start returns the failure if the other task enters after it
	st := c.Run(1).Wait()
	f := st.GetFailure()
	if st.GetState() != "failed" || f.GetTask() != "worker:1" || f.GetExitCode() != 1 {
		t.Fatalf("the run is %s: %v", st.GetState(), f)
	}
	if !strings.Contains(f.GetSummary(), "ValueError: the learning rate is a fish") {
		t.Errorf("summary %q does not contain the exception", f.GetSummary())
	}
	if !strings.Contains(strings.Join(f.GetLines(), "\n"), "about to fail") {
		t.Errorf("last stderr lines are %q", f.GetLines())
	}
	pid := int(c.Task("worker:0").GetPid())
	WaitFor(t, "the peer's end", func() bool { return !state.ProcessOf(pid).Alive() })
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

func testEarlyFailure(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	r, f := c.TryScript("import no_such_module_of_anyone")
	if f == nil { // the program was entered before it failed
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
	WaitFor(t, "the parameter server's end", func() bool { return !state.ProcessOf(ps).Alive() })
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

// testResults runs the program six times, since the order in which the tasks end is random.
func testResults(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	for range 6 {
		r := c.Script("def main_fun(args, ctx):\n    ctx.barrier('all')\n    return ctx.task_index\n",
			func(s *clusterpb.StartRequest) { s.Program.Function = "main_fun" })
		st := r.Wait()
		if st.GetState() != "finished" || st.GetResult().GetJson() != "0" {
			t.Fatalf("the run is %s, its result %q: %v\n%s", st.GetState(), st.GetResult().GetJson(), st.GetFailure(), r.Text())
		}
		if got := st.GetResults(); len(got) != 2 || got["worker:0"].GetJson() != "0" || got["worker:1"].GetJson() != "1" {
			t.Errorf("the results are %v", got)
		}
	}
}

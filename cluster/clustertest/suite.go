package clustertest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Executors are the cases of Suite in which executors are lost, taken over or given
// back: those that differ between two ways to get them from one engine.
var Executors = regexp.MustCompile("lost agent|reset hard|driver that died|take a cluster over|given up|idle")

// Suite is what every backend passes. Its programs need no TensorFlow: what is
// tested is the cluster.
func Suite(t *testing.T, h Harness) { Cases(t, h, regexp.MustCompile("")) }

// Cases are those of Suite whose names match.
func Cases(t *testing.T, h Harness, names *regexp.Regexp) {
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
		{"a stop comes at the same step on every task", testAgreedStep},
		{"a task that a stop cannot reach is killed after its peers", testUnreachable},
		{"a run's timeout ends it", testRunTimeout},
		{"no step for too long ends it", testStepTimeout},
		{"a gang is restarted on new ports with its checkpoints", testRestart},
		{"resume takes an older run's checkpoints", testResume},
		{"a lost agent is replaced", testAgentKilled},
		{"reset hard gives new agents", testResetHard},
		{"a flood of lines is kept whole", testFlood},
		{"lines of any shape come through", testOddLines},
		{"a driver that died is replaced and its tasks are ended", testDriverKilled},
		{"two that take a cluster over find one driver", testTwoRecover},
		{"a name is given once", testOneName},
		{"a reservation that is given up leaves nothing", testGivenUp},
		{"an idle cluster releases itself", testIdle},
		{"a barrier waits for all", testBarrier},
		{"a cluster has none of an earlier one's runs unless asked", testSameDirectory},
		{"results are of every task, the result is worker 0's", testResults},
	} {
		if !names.MatchString(c.name) {
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
	_, _ = c.TryScript(`
import json, os, sys, time
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    time.sleep(0.3)
    print("about to fail", file=sys.stderr)
    raise ValueError("the learning rate is a fish")
` + forever) // the start tells of the failure where the other task enters later than that
	st := c.Run(1).Wait()
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

// testResults runs it six times: which task ends last is left to chance.
func testResults(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	for range 6 {
		r := c.Script("def main_fun(args, ctx):\n    ctx.barrier('all')\n    return ctx.task_index\n", func(s *clusterpb.StartRequest) { s.Program.Function = "main_fun" })
		st := r.Wait()
		if st.GetState() != "finished" || st.GetResult().GetJson() != "0" {
			t.Fatalf("the run is %s, its result %q: %v\n%s", st.GetState(), st.GetResult().GetJson(), st.GetFailure(), r.Text())
		}
		if got := st.GetResults(); len(got) != 2 || got["worker:0"].GetJson() != "0" || got["worker:1"].GetJson() != "1" {
			t.Errorf("the results are %v", got)
		}
	}
}

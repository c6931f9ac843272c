package coordinator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// running begins a run whose tasks have all entered.
func (c *coordinated) running() *record {
	c.t.Helper()
	rec, err := c.startRun(within(c.t), &clusterpb.StartRequest{
		Options: &clusterpb.RunOptions{MaxRestarts: 1}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.enter(rec, 1)
	return rec
}

// enter has every task of an attempt enter the program, once the files of the one before are settled.
func (c *coordinated) enter(rec *record, attempt int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), deadline)
	defer cancel()
	if err := c.until(ctx, func() bool { return c.lc.Run().Attempt == attempt }, nil); err != nil {
		c.t.Fatalf("attempt %d does not begin: %v", attempt, err)
	}
	c.do(func() {
		for i, x := range c.lc.Executors() {
			c.handle(lifecycle.PortPrepared{Exec: x.ID, Run: rec.status.GetId(), Attempt: attempt, Port: int32(7000 + i)})
		}
		for _, x := range c.lc.Executors() {
			c.handle(lifecycle.ProgramEntered{Run: rec.status.GetId(), Task: x.Task})
		}
	})
}

// returns has a task say what it returned, unless that is nil, and end with a code.
func (c *coordinated) returns(rec *record, attempt int, task string, value *clusterpb.TaskResult, code int32) {
	c.t.Helper()
	event := func(e *clusterpb.TaskEvent) {
		e.Run, e.Attempt, e.Task = rec.status.GetId(), int32(attempt), task
		c.taskEvent(e)
	}
	c.do(func() {
		if value != nil {
			event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Result{Result: value}})
		}
		event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Exited{Exited: &clusterpb.Exited{Code: code}}})
	})
}

// value is what a task that returns an index says.
func value(i int) *clusterpb.TaskResult {
	return &clusterpb.TaskResult{Json: fmt.Sprint(i), Repr: fmt.Sprint(i)}
}

// TestRunResultOfChief: a run's result is what its chief, or worker 0, returned, in
// whatever order the tasks end; results has every task's.
func TestRunResultOfChief(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"worker:0", "worker:1"}, {"worker:1", "worker:0"}} {
		c := coordinate(t, true)
		rec := c.running()
		for _, task := range order {
			c.returns(rec, 1, task, value(int(task[len(task)-1]-'0')), 0)
		}
		c.do(func() {
			st := c.statusWithValues(rec)
			if st.GetState() != "finished" || st.GetResult().GetJson() != "0" {
				t.Errorf("ended in the order %v: %s with the result %q", order, st.GetState(), st.GetResult().GetJson())
			}
			for task, want := range map[string]string{"worker:0": "0", "worker:1": "1"} {
				if got := st.GetResults()[task].GetJson(); got != want {
					t.Errorf("ended in the order %v: the result of %s is %q", order, task, got)
				}
			}
		})
	}
}

// TestRunResultOfLastAttempt: what an attempt returned that was followed by another is not
// the run's, and a task that returned nothing is among those that ended well.
func TestRunResultOfLastAttempt(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	rec := c.running()
	c.returns(rec, 1, "worker:0", value(7), 0)
	c.returns(rec, 1, "worker:1", value(8), 3) // fails the attempt
	c.do(func() {
		if st := c.statusWithValues(rec); len(st.GetResults()) != 0 || st.GetResult() != nil {
			t.Errorf("while it is open the run's results are %v", st.GetResults())
		}
	})
	c.enter(rec, 2)
	c.returns(rec, 2, "worker:1", nil, 0)
	c.do(func() { // of the attempt before, late
		c.taskEvent(&clusterpb.TaskEvent{
			Run: rec.status.GetId(), Attempt: 1, Task: "worker:0", Event: &clusterpb.TaskEvent_Result{Result: value(9)},
		})
	})
	c.returns(rec, 2, "worker:0", nil, 0)
	c.do(func() {
		st := c.statusWithValues(rec)
		if st.GetState() != "finished" || st.GetResult() != nil {
			t.Errorf("%s, the result is %v", st.GetState(), st.GetResult())
		}
		if len(st.GetResults()) != 2 || st.GetResults()["worker:1"].GetJson() != "null" {
			t.Errorf("the results are %v", st.GetResults())
		}
	})
}

// TestRunResultsBounded: values too large together are kept as their repr, which is said.
func TestRunResultsBounded(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	rec := c.running()
	big := &clusterpb.TaskResult{Pickled: make([]byte, maxValues-100), Repr: "array(…)"}
	c.returns(rec, 1, "worker:1", big, 0)
	c.returns(rec, 1, "worker:0", &clusterpb.TaskResult{Json: "0", Pickled: make([]byte, 100), Repr: "0"}, 0)
	c.do(func() {
		st := c.statusWithValues(rec)
		if r := st.GetResults()["worker:1"]; len(r.GetPickled()) != maxValues-100 {
			t.Errorf("the first value was cut to %v", r)
		}
		if st.GetResult().GetJson() != "0" || st.GetResults()["worker:0"].GetJson() != "" ||
			st.GetResults()["worker:0"].GetRepr() != "0" {
			t.Errorf("the result is %v, of the results it is %v", st.GetResult(), st.GetResults()["worker:0"])
		}
		said := ""
		for _, n := range c.notes.since(0) {
			said += n.GetText()
		}
		if !strings.Contains(said, "run.results: only the repr of worker:0 is kept") {
			t.Errorf("nothing is said of it: %q", said)
		}
	})
}

// TestWhoseResult: the run's result is of the chief, worker 0, or the first role that the
// run waits for.
func TestWhoseResult(t *testing.T) {
	t.Parallel()
	role := func(name string) *clusterpb.Role { return &clusterpb.Role{Name: name, Count: 1} }
	for want, roles := range map[string][]*clusterpb.Role{
		"chief:0":  {role(cluster.Worker), role(cluster.Chief), role(cluster.PS)},
		"master:0": {role(cluster.Worker), role("master")},
		"worker:0": {role(cluster.PS), role("db"), role(cluster.Worker)},
		"db:0":     {role(cluster.PS), {Name: "gone"}, role("db"), role("web")},
	} {
		if got := resultTask(roles).String(); got != want {
			t.Errorf("the result of %v is of %s, want %s", roles, got, want)
		}
	}
}

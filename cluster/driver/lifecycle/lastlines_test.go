package lifecycle

import (
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestLastLines: failures caused by a lost agent include its last lines, until another agent
// has joined.
func TestLastLines(t *testing.T) {
	t.Parallel()
	begin := func() *Machine {
		p := &player{t: t}
		if err := p.cluster(map[string]string{"worker": "2"}); err != nil {
			t.Fatal(err)
		}
		return p.l
	}
	failure := func(actions []Action) *clusterpb.Failure {
		for _, a := range actions {
			if f, ok := a.(ReservationFailed); ok {
				return f.Failure
			}
		}
		return nil
	}
	want := []string{"Traceback", "no room"}
	lose := func(l *Machine, id cluster.ExecutorID) []Action {
		x := l.Executor(id)
		attempt := x.Attempt
		l.Step(cluster.Granted{Executor: id, Attempt: attempt, Host: "n1"})
		return l.Step(cluster.Lost{
			Executor: id, Attempt: attempt, By: cluster.LostByError, Cause: "its agent ended with code 1", LastLines: want,
		})
	}
	l := begin()
	lose(l, "1")
	l.Step(cluster.Lost{Executor: "1", Attempt: -1, LastLines: []string{"of an older one"}})
	if f := failure(l.Step(TimerFired{"reserve"})); f == nil || !slices.Equal(f.GetLines(), want) {
		t.Errorf("at the timeout: %v", f)
	}
	l = begin()
	var f *clusterpb.Failure
	for range MaxReplacements + 1 {
		f = failure(lose(l, "1"))
	}
	if !slices.Equal(f.GetLines(), want) {
		t.Errorf("after the last replacement: %v", f)
	}
	l = begin()
	want = []string{"Traceback", "ended with code 1"} // the summary ends with the last one
	for range MaxReplacements + 1 {
		f = failure(lose(l, "1"))
	}
	if !slices.Equal(f.GetLines(), want[:1]) {
		t.Errorf("with a line that the summary has: %v", f)
	}
	want = []string{"Traceback", "no room"}
	l = begin()
	lose(l, "1")
	l.Step(AgentJoined{Exec: "1", Attempt: l.Executor("1").Attempt, Incarnation: "i", Host: "n2", Warm: false})
	if f := failure(l.Step(TimerFired{"reserve"})); f == nil || len(f.GetLines()) > 0 {
		t.Errorf("after another came: %v", f)
	}
}

// TestBarrierOfStages: a barrier does not wait for a task that begins after the tasks at the
// barrier have ended; it waits for a task that depends on another role.
func TestBarrierOfStages(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]string{
		cluster.Chief: "worker:0 begins only when the chief has ended (--worker-depends-on), so it cannot arrive before",
		"loader":      "",
	} {
		p := &player{t: t}
		for _, line := range []string{
			"cluster chief=1 worker=1 loader=1 worker.after=" + before, "up", "start", "prepared", "entered chief:0",
		} {
			if err := p.do(line); err != nil {
				t.Fatal(err)
			}
		}
		if problem, open := p.l.BarrierOpens(map[cluster.TaskID]bool{{Role: cluster.Chief}: true}, 1); problem != want ||
			open != (want != "") {
			t.Errorf("worker behind %s: %q, %t", before, problem, open)
		}
	}
}

package render

import (
	"fmt"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// pace is how far the tasks are that train and report their steps: the run is as far as the
// slowest of those that still run.
type pace struct {
	slowest, fastest int64
	last             string // the slowest task; "" where it is not behind
	slack            int64  // how many steps a task may be behind by the time its reports take
}

func paceOf(st *clusterpb.RunStatus) pace {
	at := st.GetProgress().GetStep()
	p := pace{slowest: at, fastest: at, slack: max(2, int64(st.GetStepsPerSecond()))}
	for _, x := range st.GetTasks() {
		if !trainsInSteps(x) {
			continue
		}
		p.fastest = max(p.fastest, x.GetStep())
		if Active(st) && !Over(x.GetState()) && (x.GetStep() < p.slowest || x.GetStep() == p.slowest && p.last == "") {
			p.slowest, p.last = x.GetStep(), x.GetTask()
		}
	}
	if !p.behind(p.slowest) {
		p.slowest, p.last = at, ""
	}
	return p
}

// trainsInSteps returns whether a task is one of those whose steps are the run's.
func trainsInSteps(x *clusterpb.TaskStatus) bool {
	t, err := cluster.ParseTask(x.GetTask())
	return err == nil && cluster.Trains(t.Role) && x.GetStep() > 0
}

// behind returns whether a task at that step is a straggler.
func (p pace) behind(step int64) bool { return p.fastest-step >= p.slack }

// lag is how a task of an active run straggles: the steps that it is behind, or how many times as long as the median it
// takes for a step outside of collective operations, which keep tasks at one step. Both are 0 if it does not straggle.
func (p pace) lag(x *clusterpb.TaskStatus) (steps int64, slowdown float64) {
	switch {
	case Over(x.GetState()):
	case trainsInSteps(x) && p.behind(x.GetStep()):
		return p.fastest - x.GetStep(), 0
	default:
		return 0, x.GetSlowdown()
	}
	return 0, 0
}

// slower is the task that takes longest for a step on its own; nil if there is no straggler.
func slower(st *clusterpb.RunStatus) *clusterpb.TaskStatus {
	var most *clusterpb.TaskStatus
	for _, x := range st.GetTasks() {
		if x.GetSlowdown() > most.GetSlowdown() && !Over(x.GetState()) {
			most = x
		}
	}
	return most
}

// times is a factor: "3.1×".
func times(factor float64) string {
	if factor < 10 {
		return fmt.Sprintf("%.1f×", factor)
	}
	return Thousands(int64(factor)) + "×"
}

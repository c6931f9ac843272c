package lifecycle

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// closeRun sets the outcome of the run and ends its remaining processes. An executor is free
// once its task has ended.
func (l *Machine) closeRun(how string, f *clusterpb.Failure, grace time.Duration) {
	r := l.run
	switch how {
	case "finished":
		r.State = RunFinished
	case "stopped":
		r.State = RunStopped
	default:
		r.State = RunFailed
	}
	r.Failure = f
	for _, name := range append(l.endTimers(), "enter", "step", "run", "settle", "stop", "stop step",
		"stop unresponsive") {
		if name != "enter" || l.next == nil { // a waiting start keeps its timer
			l.do(SetTimer{name, 0})
		}
	}
	l.do(RunChanged{})
	l.do(RunOver{})
	l.endAll(grace)
	l.checkProcessesGone()
}

// endAll ends all remaining processes of the run.
func (l *Machine) endAll(grace time.Duration) {
	for _, x := range l.execs {
		if x.Busy {
			l.end(x, grace)
		}
	}
	if l.count.busy > 0 {
		l.do(SetTimer{"ending", grace + l.limits.ending})
	}
}

// end ends an executor's process. If its agent is silent, the instruction is sent again when the agent reconnects;
// otherwise it is not repeated, because a second SIGTERM would interrupt a program that is saving.
func (l *Machine) end(x *Executor, grace time.Duration) {
	t := l.run.task(x.Task)
	t.asked, t.signaled = true, true
	x.inRun.endMissed, x.inRun.grace = x.State == ExecutorSilent || x.agent.silent > 0, grace
	l.do(SendInstruction{x.ID, endRun(l.run.Spec.ID, grace)})
}

// checkProcessesGone reports RunGone when no process of a closed run is left, and lets the next
// run begin.
func (l *Machine) checkProcessesGone() {
	if l.count.busy > 0 {
		return
	}
	l.do(SetTimer{"ending", 0})
	if l.run != nil && !l.run.State.Open() {
		// Agents without a task still hold the port of the run.
		for _, x := range l.execs {
			if x.State == ExecutorReady {
				l.do(SendInstruction{x.ID, endRun(l.run.Spec.ID, 0)})
			}
		}
		l.do(RunGone{l.run})
	}
	l.advance()
}

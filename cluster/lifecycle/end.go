package lifecycle

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// outcome closes the run. What is left of it is ended; the executors are free once
// their tasks are gone.
func (l *Machine) outcome(how string, f *clusterpb.Failure, grace time.Duration) {
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
	for _, name := range append(l.endTimers(), "enter", "step", "run", "settle", "stop", "stop step", "stop unresponsive") {
		if name != "enter" || l.next == nil { // the next start's clock runs on
			l.do(SetTimer{name, 0})
		}
	}
	l.do(RunChanged{})
	l.do(RunOver{})
	l.endAll(grace)
	l.gone()
}

// endAll ends every process of the run that is left.
func (l *Machine) endAll(grace time.Duration) {
	busy := false
	for _, x := range l.execs {
		if !x.Busy {
			continue
		}
		busy = true
		l.end(x, grace)
	}
	if busy {
		l.do(SetTimer{"ending", grace + l.limits.ending})
	}
}

// end ends an executor's process. One that is silent is told when it is back: the
// word is not repeated otherwise, since a program takes a second SIGTERM ill.
func (l *Machine) end(x *Executor, grace time.Duration) {
	t := l.run.task(x.Task)
	t.asked, t.signaled = true, true
	x.inRun.missed, x.inRun.grace = x.State == ExecutorSilent, grace
	l.do(SendInstruction{x.ID, endRun(l.run.Spec.ID, grace)})
}

// gone tells when no process of a closed run is left, and lets the next one begin.
func (l *Machine) gone() {
	if l.count.busy > 0 {
		return
	}
	l.do(SetTimer{"ending", 0})
	if l.run != nil && !l.run.State.Open() {
		// Agents that had no task left still hold the run's port.
		for _, x := range l.execs {
			if x.State == ExecutorReady {
				l.do(SendInstruction{x.ID, endRun(l.run.Spec.ID, 0)})
			}
		}
		l.do(RunGone{})
	}
	l.advance()
}

package cluster

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// outcome closes the run. What is left of it is ended; the executors are free once
// their tasks are gone.
func (l *lifecycle) outcome(how string, f *clusterpb.Failure, grace time.Duration) {
	r := l.run
	switch how {
	case "finished":
		r.state = runFinished
	case "stopped":
		r.state = runStopped
	default:
		r.state = runFailed
	}
	r.failure = f
	for _, name := range append(l.endTimers(), "enter", "step", "run", "settle", "stop", "stop step", "stop unresponsive") {
		if name != "enter" || l.next == nil { // the next start's clock runs on
			l.do(actTimer{name, 0})
		}
	}
	l.do(actRunChanged{})
	l.do(actRunOver{})
	l.endAll(grace)
	l.gone()
}

// endAll ends every process of the run that is left.
func (l *lifecycle) endAll(grace time.Duration) {
	busy := false
	for _, x := range l.execs {
		if !x.busy {
			continue
		}
		busy = true
		l.end(x, grace)
	}
	if busy {
		l.do(actTimer{"ending", grace + l.limits.ending})
	}
}

// end ends an executor's process. One that is silent is told when it is back: the
// word is not repeated otherwise, since a program takes a second SIGTERM ill.
func (l *lifecycle) end(x *executor, grace time.Duration) {
	t := l.run.task(x.task)
	t.asked, t.signaled = true, true
	x.missed, x.grace = x.state == execSilent, grace
	l.do(actSend{x.id, endRun(l.run.spec.id, grace)})
}

// gone tells when no process of a closed run is left, and lets the next one begin.
func (l *lifecycle) gone() {
	if l.count.busy > 0 {
		return
	}
	l.do(actTimer{"ending", 0})
	if l.run != nil && !l.run.state.open() {
		// Agents that had no task left still hold the run's port.
		for _, x := range l.execs {
			if x.state == execReady {
				l.do(actSend{x.id, endRun(l.run.spec.id, 0)})
			}
		}
		l.do(actRunGone{})
	}
	l.advance()
}

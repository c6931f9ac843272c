package cluster

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// stop ends a run on request; a second one without grace kills.
func (l *lifecycle) stop(e evStop) {
	if l.next != nil && !l.active() {
		l.next = nil
		l.do(actTimer{"enter", 0})
		l.do(actRunOver{})
		return
	}
	if !l.active() {
		return
	}
	r := l.run
	reason := e.reason
	if reason == "" {
		reason = "stopped"
	}
	if r.stopping && e.grace > 0 {
		return
	}
	r.stopping = true
	busy := false
	for _, x := range l.execs {
		if x.busy {
			busy = true
			l.end(x, e.grace)
		}
	}
	if !busy {
		l.outcome("stopped", &clusterpb.Failure{Kind: "canceled", Summary: reason}, 0)
		return
	}
	r.failure = &clusterpb.Failure{Kind: "canceled", Summary: reason}
	l.do(actTimer{"ending", e.grace + l.limits.ending})
	l.do(actRunChanged{})
}

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
	for _, name := range append(l.endTimers(), "enter", "step", "run", "settle") {
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
	l.run.task(x.task).asked = true
	x.missed, x.grace = x.state == execSilent, grace
	l.do(actSend{x.id, endRun(l.run.spec.id, grace)})
}

// gone tells when no process of a closed run is left, and lets the next one begin.
func (l *lifecycle) gone() {
	for _, x := range l.execs {
		if x.busy {
			return
		}
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

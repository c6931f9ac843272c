package lifecycle

import (
	"fmt"
	"slices"

	"github.com/tfcluster/tfcluster/cluster"
)

// rootCause handles the task whose failure, or lost executor, is the root cause. If restarts
// are left and every task had entered the program, all tasks are launched again; otherwise the
// run fails.
func (l *Machine) rootCause(t *Task, summary string) {
	r := l.run
	l.do(SetTimer{"settle", 0})
	others := slices.DeleteFunc(r.echoes, func(e *Task) bool { return e == t })
	r.undecided = undecided{} // the next failure with an error about a peer starts a new wait
	parameterServers := len(r.cluster[cluster.PS]) > 0
	if parameterServers && t.ID.Role == cluster.Worker {
		lost := l.Executor(t.exec).State != ExecutorReady
		if lost { // those that failed because of it may start again, and the run then continues with them
			l.restartPeers(others)
		}
		if l.restartWorker(t, summary) {
			if !lost {
				l.restartPeers(others)
			}
			return
		}
	}
	if !parameterServers && r.entered {
		if counted := l.countRestart(t); counted != "" {
			l.restartAll(summary + "; " + counted)
			return
		}
	}
	l.closeRun("failed", l.failure(t, summary), l.limits.failGrace)
}

// restarts counts the restarts of all tasks of a run, and has the state of the next one.
type restarts struct {
	Restarts int
	Losses   int // because an executor was taken away, which Restarts does not count

	asked, settled int // the attempts of the last SettleFiles and of the last FilesSettled
}

// countRestart counts a restart of the run because of a task, and says which one it is; "" if none is left. A run that
// restarts at all does so apart from that, up to --max-losses, where the task's executor was taken away: a program
// without fault would end after as many preemptions as it may fail. Where somebody ended the
// application nothing restarts.
func (l *Machine) countRestart(t *Task) string {
	r, x := l.run, l.Executor(t.exec)
	restarts, losses := int(r.Spec.Options.GetMaxRestarts()), int(r.Spec.Options.GetMaxLosses())
	switch {
	case restarts == 0, x != nil && x.State == ExecutorLost && x.loss.by == cluster.LostByKill:
		return ""
	case x != nil && x.takenAway() && r.Losses < losses:
		r.Losses++
		return fmt.Sprintf("loss %d of %d", r.Losses, losses)
	case r.Restarts < restarts:
		r.Restarts++
		return fmt.Sprintf("restart %d of %d", r.Restarts, restarts)
	}
	return ""
}

// restartPeers handles the workers of a run with parameter servers whose failures another worker's loss or failure
// explains.
func (l *Machine) restartPeers(echoes []*Task) {
	for _, t := range echoes {
		t.Echo = false
		l.restartWorker(t, l.describe(t))
	}
}

// takenAway reports whether the executor was lost without a fault of the program: its host was lost or is silent, or
// the engine gave it to others.
func (x *Executor) takenAway() bool {
	return x.State == ExecutorSilent && !x.agent.sudden || x.State == ExecutorLost && x.loss.by == cluster.LostByHost
}

// restartAll ends every task and launches all of them again once the executors are ready.
func (l *Machine) restartAll(summary string) {
	r := l.run
	l.note(true, "%s: all tasks start again on new ports, from the last checkpoint", summary)
	r.State, r.over = RunRestarting, false // also if a stage after training caused it
	for _, name := range append(l.endTimers(), "step") {
		l.do(SetTimer{name, 0})
	}
	l.do(SetTimer{"enter", l.limits.enter})
	l.do(RunChanged{})
	l.endAll(l.limits.failGrace)
	l.regain()
	l.checkProcessesGone()
}

// filesSettled reports whether the files of the attempt that ended are ready for the next one. Its first call for an
// attempt requests that by SettleFiles.
func (l *Machine) filesSettled() bool {
	r := l.run
	if r.settled < r.Attempt && r.asked < r.Attempt {
		r.asked = r.Attempt
		l.do(SettleFiles{r.Spec.ID, r.Attempt})
	}
	return r.settled == r.Attempt
}

func (l *Machine) settled(e FilesSettled) {
	if r := l.run; r != nil && r.Spec.ID == e.Run && r.settled < e.Attempt {
		r.settled = e.Attempt
		l.advance()
	}
}

// LoneRestart separates the attempt numbers of a task that is restarted alone from those of the
// whole run, which are lower.
const LoneRestart = 100_000

// restartWorker handles a lost worker of a run with parameter servers: it is launched again at
// its address while restarts are left; after that the run continues without it. It returns
// false if it was the last worker.
func (l *Machine) restartWorker(t *Task, summary string) bool {
	r := l.run
	x := l.Executor(t.exec)
	if r.Restarts < int(r.Spec.Options.GetMaxRestarts()) && x.State == ExecutorReady {
		r.Restarts++
		t.Restarts++
		l.note(true, "%s; restart %d of %d: only this worker, at the same address", summary, r.Restarts,
			r.Spec.Options.GetMaxRestarts())
		l.launch(x)
		return true
	}
	others := r.count[cluster.Worker].running + r.count[cluster.Worker].launching
	if t.State == TaskRunning || t.State == TaskLaunching {
		others-- // this one
	}
	if others == 0 {
		return false
	}
	l.note(true, "%s; the run continues with %d other %s", summary, others, plural(others, "worker"))
	l.do(RunChanged{})
	l.launchDue() // neither the others nor later roles wait for it any more
	l.allEntered()
	return true
}

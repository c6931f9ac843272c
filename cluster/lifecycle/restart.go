package lifecycle

import "github.com/tfcluster/tfcluster/cluster"

// rootCause handles the task whose failure, or lost executor, is the root cause. If restarts
// are left and every task had entered the program, all tasks are launched again; otherwise the
// run fails.
func (l *Machine) rootCause(t *Task, summary string) {
	r := l.run
	l.do(SetTimer{"settle", 0})
	r.echoes = nil // decided: the next failure with an error about a peer starts a new wait
	parameterServers := len(r.cluster[cluster.PS]) > 0
	if parameterServers && t.ID.Role == cluster.Worker {
		if l.restartWorker(t, summary) {
			return
		}
	}
	if !parameterServers && r.Restarts < int(r.Spec.Options.GetMaxRestarts()) && r.entered {
		l.restartAll(summary)
		return
	}
	l.closeRun("failed", l.failure(t, summary), l.limits.failGrace)
}

// restartAll ends every task and launches all of them again once the executors are ready.
func (l *Machine) restartAll(summary string) {
	r := l.run
	r.Restarts++
	l.note(true, "%s; restart %d of %d: all tasks start again on new ports, from the last checkpoint", summary, r.Restarts, r.Spec.Options.GetMaxRestarts())
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

// restartWorker handles a lost worker of a run with parameter servers: it is launched again at
// its address while restarts are left; after that the run continues without it. It returns
// false if it was the last worker.
func (l *Machine) restartWorker(t *Task, summary string) bool {
	r := l.run
	x := l.Executor(t.exec)
	if r.Restarts < int(r.Spec.Options.GetMaxRestarts()) && x.State == ExecutorReady {
		r.Restarts++
		t.Restarts++
		l.note(true, "%s; restart %d of %d: only this worker, at the same address", summary, r.Restarts, r.Spec.Options.GetMaxRestarts())
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

package lifecycle

import "github.com/tfcluster/tfcluster/cluster"

// cause takes the task whose failure, or whose lost executor, is the cause. While restarts are
// left, and every task has entered the program, all tasks are launched again; else the run has
// failed.
func (l *Machine) cause(t *Task, summary string) {
	r := l.run
	l.do(SetTimer{"settle", 0})
	r.echoes = nil // the verdict is in: the next echo waits for one of its own
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
	l.outcome("failed", l.failure(t, summary), l.limits.failGrace)
}

// restartAll ends every task and has all of them launched again, once the executors are there.
func (l *Machine) restartAll(summary string) {
	r := l.run
	r.Restarts++
	l.note(true, "%s; restart %d of %d: every task again on new ports, from the last checkpoint", summary, r.Restarts, r.Spec.Options.GetMaxRestarts())
	r.State, r.over = RunRestarting, false // also where it fell to a stage behind the training
	for _, name := range append(l.endTimers(), "step") {
		l.do(SetTimer{name, 0})
	}
	l.do(SetTimer{"enter", l.limits.enter})
	l.do(RunChanged{})
	l.endAll(l.limits.failGrace)
	l.regain()
	l.gone()
}

// restartWorker handles a lost worker beside parameter servers: it is launched again at its
// address while restarts are left, else the others go on without it. It returns false where
// that worker was the last.
func (l *Machine) restartWorker(t *Task, summary string) bool {
	r := l.run
	x := l.Executor(t.exec)
	if r.Restarts < int(r.Spec.Options.GetMaxRestarts()) && x.State == ExecutorReady {
		r.Restarts++
		t.Restarts++
		l.note(true, "%s; restart %d of %d: this worker alone, at its address", summary, r.Restarts, r.Spec.Options.GetMaxRestarts())
		l.launch(x, false)
		return true
	}
	others := r.count[cluster.Worker].running + r.count[cluster.Worker].launching
	if t.State == TaskRunning || t.State == TaskLaunching {
		others-- // this one
	}
	if others == 0 {
		return false
	}
	l.note(true, "%s; the run goes on with %d other %s", summary, others, plural(others, "worker"))
	l.do(RunChanged{})
	l.launchDue() // nobody waits for it any more, neither who comes after it
	l.allEntered()
	return true
}

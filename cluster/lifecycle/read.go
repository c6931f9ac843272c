package lifecycle

import (
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// What the coordinator reads of the lifecycle. It changes nothing of what it is given.

// State is how far the cluster is.
func (l *Machine) State() State { return l.state }

// Executors are the places of the allocation, in the order in which they were asked for.
func (l *Machine) Executors() []*Executor { return l.execs }

// Run is the active run, or the last one; nil before the first.
func (l *Machine) Run() *Run { return l.run }

// ReleaseReason is why the cluster is being given back; "" while it is not.
func (l *Machine) ReleaseReason() string { return l.released }

// IdleLimit is how long the cluster is kept while nobody looks and nothing runs; 0: for ever.
func (l *Machine) IdleLimit() time.Duration { return l.limits.Idle }

// HasRole is whether there are executors for a role.
func (l *Machine) HasRole(role string) bool {
	for _, x := range l.execs {
		if x.Task.Role == role {
			return true
		}
	}
	return false
}

// BarrierOpens is whether nobody is waited for any more at a barrier of the run where these tasks
// have arrived, of which came are chiefs and workers; problem says who never comes. One that
// begins only when tasks that may wait here have ended is among those.
func (l *Machine) BarrierOpens(arrived map[cluster.TaskID]bool, came int) (problem string, open bool) {
	if l.run.barrierAwaits(came) {
		return "", false
	}
	open = true
	for _, t := range l.run.Tasks {
		if (t.ID.Role != cluster.Chief && t.ID.Role != cluster.Worker) || arrived[t.ID] {
			continue
		}
		if t.State == TaskExited || t.State == TaskEnded {
			return fmt.Sprintf("%s has ended and will not come", t.ID), true
		}
		if (t.Awaits == cluster.Chief || t.Awaits == cluster.Worker) && t.State == TaskWaiting && l.policy(t.Awaits).kind == cluster.Tracked {
			return fmt.Sprintf("%s begins when the %s has ended (--%s-depends-on), and cannot come before", t.ID, t.Awaits, t.ID.Role), true
		}
		open = false
	}
	return "", open
}

// barrierAwaits is whether a task is missing at a barrier that will come in any case, as far
// as the counts of tasks tell: it spares a look at each task for each that arrives.
func (r *Run) barrierAwaits(came int) bool {
	missing := -came
	for _, role := range []string{cluster.Chief, cluster.Worker} {
		n := r.count[role]
		switch {
		case n == nil:
		case n.alive() < n.total, n.waiting > 0 && n.awaits != "":
			return false
		default:
			missing += n.total
		}
	}
	return missing > 0
}

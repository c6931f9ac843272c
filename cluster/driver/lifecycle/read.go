package lifecycle

import (
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// The coordinator reads the lifecycle through these methods. It must not change what they
// return.

// State returns the state of the cluster.
func (l *Machine) State() State { return l.state }

// Executors returns the executors, in the order of the request.
func (l *Machine) Executors() []*Executor { return l.execs }

// Run returns the active run, or the last one; nil before the first.
func (l *Machine) Run() *Run { return l.run }

// ReleaseReason returns why the cluster is being released; "" if it is not.
func (l *Machine) ReleaseReason() string { return l.released }

// IdleLimit returns how long an unused cluster is kept; 0: forever.
func (l *Machine) IdleLimit() time.Duration { return l.limits.Idle }

// HasRole reports whether there are executors for a role.
func (l *Machine) HasRole(role string) bool {
	for _, x := range l.execs {
		if x.Task.Role == role {
			return true
		}
	}
	return false
}

// BarrierOpens reports whether a barrier of the run must open, given the tasks that have
// arrived there; came is how many of those are chiefs and workers. problem names a task that
// will never arrive, if there is one: it has ended, or it begins only after tasks that may wait
// at the barrier have ended.
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
			return fmt.Sprintf("%s has ended and cannot arrive", t.ID), true
		}
		if cluster.Trains(t.Awaits) && t.State == TaskWaiting && l.policy(t.Awaits).kind == cluster.Tracked {
			return fmt.Sprintf("%s begins only when the %s has ended (--%s-depends-on), so it cannot arrive before", t.ID,
				t.Awaits, t.ID.Role), true
		}
		open = false
	}
	return "", open
}

// barrierAwaits reports whether a task that can still arrive is missing at a barrier, as far as
// the counts of tasks show. It saves BarrierOpens from looking at each task on each arrival.
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

package cluster

import (
	"fmt"
	"time"
)

// What the coordinator reads of the lifecycle. It changes nothing of what it is given.

// State is how far the cluster is.
func (l *lifecycle) State() clusterState { return l.state }

// Executors are the places of the allocation, in the order in which they were asked for.
func (l *lifecycle) Executors() []*executor { return l.execs }

// Run is the active run, or the last one; nil before the first.
func (l *lifecycle) Run() *run { return l.run }

// ReleaseReason is why the cluster is being given back; "" while it is not.
func (l *lifecycle) ReleaseReason() string { return l.released }

// IdleLimit is how long the cluster is kept while nobody looks and nothing runs; 0: for ever.
func (l *lifecycle) IdleLimit() time.Duration { return l.limits.idle }

// hasRole is whether there are executors for a role.
func (l *lifecycle) hasRole(role string) bool {
	for _, x := range l.execs {
		if x.task.Role == role {
			return true
		}
	}
	return false
}

// opens is whether nobody is waited for any more at a barrier of the run where these tasks
// have arrived; problem says who never comes. One that
// begins only when tasks that may wait here have ended is among those.
func (l *lifecycle) opens(arrived map[TaskID]bool) (problem string, open bool) {
	open = true
	for _, t := range l.run.tasks {
		if (t.id.Role != Chief && t.id.Role != Worker) || arrived[t.id] {
			continue
		}
		if t.state == taskExited || t.state == taskEnded {
			return fmt.Sprintf("%s has ended and will not come", t.id), true
		}
		if (t.awaits == Chief || t.awaits == Worker) && t.state == taskWaiting && l.policy(t.awaits).kind == Tracked {
			return fmt.Sprintf("%s begins when the %s has ended (--%s-depends-on), and cannot come before", t.id, t.awaits, t.id.Role), true
		}
		open = false
	}
	return "", open
}

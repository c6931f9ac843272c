package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// silent records for how long an agent has sent no message. An agent that is silent for limits.Heartbeat is lost; from
// limits.quiet on, its silence is the cause of a peer's failure that waits for its root cause.
func (l *Machine) silent(x *Executor, d time.Duration) {
	if x == nil || x.State < ExecutorJoined || x.State == ExecutorLost {
		return
	}
	if x.agent.silent = d; d == 0 {
		l.answered(x)
		return
	}
	switch {
	case d >= l.limits.Heartbeat:
		l.loseSilent(x)
	case d >= l.limits.quiet && l.run != nil && l.run.evidence:
		l.verdict()
	}
}

// SilenceCause returns the cause of the loss of an executor whose agent has been silent for d.
func SilenceCause(d time.Duration) string {
	return fmt.Sprintf("silent for %.0f s: its host is down or cut off", d.Seconds())
}

// loseSilent marks the executor of a silent agent as lost.
func (l *Machine) loseSilent(x *Executor) {
	cause := SilenceCause(x.agent.silent)
	l.loseWith(x, cluster.LostByHost, cause, cause)
}

// probe has every agent with a task send a heartbeat at once.
func (l *Machine) probe() {
	for _, x := range l.execs {
		if x.Busy {
			x.agent.probed = true
			l.do(
				SendInstruction{x.ID, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_Probe{Probe: &clusterpb.Probe{}}}})
		}
	}
}

// answered records a message of an agent. A verdict that waits for the answer of this agent alone is given.
func (l *Machine) answered(x *Executor) {
	x.agent.probed, x.inRun.endMissed = false, false // what was sent to it on this connection has arrived
	if l.run != nil && l.run.evidence && !slices.ContainsFunc(l.execs, l.unanswered) {
		l.verdict()
	}
}

// unanswered reports whether an executor with a task has not answered the last probe. An agent that has just ended
// without a report does not answer; its loss is reported by limits.Sudden.
func (l *Machine) unanswered(x *Executor) bool {
	return x.Busy && x.agent.probed && l.policy(x.Task.Role).kind != cluster.Sidecar
}

// silentPeer returns the executor of a peer of the task whose agent has been silent for limits.quiet or longer, the
// longest first; nil if there is none.
func (l *Machine) silentPeer(t *Task) *Executor {
	var found *Executor
	for _, x := range l.execs {
		if x.Busy && x.Task != t.ID && x.agent.silent >= l.limits.quiet && l.policy(x.Task.Role).kind != cluster.Sidecar &&
			(found == nil || x.agent.silent > found.agent.silent) {
			found = x
		}
	}
	return found
}

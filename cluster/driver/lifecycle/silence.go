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
	if d == 0 {
		l.answered(x)
		return
	}
	x.agent.silent = d
	switch {
	case d >= l.limits.Heartbeat:
		l.loseSilent(x)
	case d >= l.limits.quiet && l.run != nil && l.run.evidence:
		l.verdict()
	}
}

// silenceCause returns the cause of the loss of an executor whose agent has been silent for d. hostAnswers reports that
// another agent on its host is not silent.
func silenceCause(d time.Duration, hostAnswers bool) string {
	why := "its host is down or cut off"
	if hostAnswers {
		why = "its agent is stopped or hangs, while others on its host answer"
	}
	return fmt.Sprintf("silent for %.0f s: %s", d.Seconds(), why)
}

// loseSilent marks the executor of a silent agent as lost, and then the others on its host whose
// agents are silent, too.
func (l *Machine) loseSilent(x *Executor) {
	l.loseAsSilent(x)
	for _, other := range l.execs {
		if other.Host == x.Host && other.agent.silent >= l.limits.quiet {
			l.loseAsSilent(other)
		}
	}
}

func (l *Machine) loseAsSilent(x *Executor) {
	cause := silenceCause(x.agent.silent, l.answersOn(x, true))
	l.loseWith(x, cluster.LostByHost, cause, cause)
}

// hostLost reports whether the host has failed, and not only its agent or the driver's network: no other agent on the
// host answers, and an agent on another host does, if there is another host.
func (l *Machine) hostLost(x *Executor) bool {
	elsewhere := slices.ContainsFunc(l.execs, func(o *Executor) bool { return o.Host != x.Host })
	return x.agent.silent > 0 && !l.answersOn(x, true) && (!elsewhere || l.answersOn(x, false))
}

// answersOn reports whether another executor's agent is connected and not silent: on the host of x, or on other hosts.
func (l *Machine) answersOn(x *Executor, same bool) bool {
	return slices.ContainsFunc(l.execs, func(o *Executor) bool {
		return o != x && (o.Host == x.Host) == same && o.connected() && o.State != ExecutorSilent && o.agent.silent == 0
	})
}

// connected reports whether the executor has an agent, which may be silent.
func (x *Executor) connected() bool { return x.State >= ExecutorJoined && x.State != ExecutorLost }

// probe has every agent with a task send a heartbeat at once.
func (l *Machine) probe() {
	for _, x := range l.execs {
		if x.Busy {
			x.agent.probed = true
			l.do(SendInstruction{x.ID, &clusterpb.Instruction{
				Instruction: &clusterpb.Instruction_Probe{Probe: &clusterpb.Probe{}},
			}})
		}
	}
}

// answered notes that an agent has sent a message. If the verdict waited only for this agent, it is given now.
func (l *Machine) answered(x *Executor) {
	// What was sent to it on this connection has arrived.
	x.agent.silent, x.agent.probed, x.inRun.endMissed = 0, false, false
	if l.run != nil && l.run.evidence {
		l.verdict()
	}
}

// unanswered reports whether an executor with a task has not answered the last probe. Later it answers, or it is silent
// for limits.quiet, or lost.
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

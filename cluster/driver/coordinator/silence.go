package coordinator

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// shownSilence: status and the panel show the silence of an agent from this time on.
const shownSilence = 5 * time.Second

// agentGrace is the least time that tasks run on without a driver.
const agentGrace = time.Minute

// orphanGrace returns how long tasks run on without a driver, if their engine does not say it: longer than the driver
// waits for their agents, so that an end of theirs is not the cause of a run's failure.
func orphanGrace(heartbeatTimeout time.Duration) time.Duration {
	return max(agentGrace, heartbeatTimeout+agentGrace/2)
}

// OrphanGrace returns how long tasks run on without the driver.
func (c *Coordinator) OrphanGrace() time.Duration { return c.cfg.OrphanGrace }

// silences is what the driver knows about agents that send no messages. Owned by the loop.
type silences struct {
	usual  time.Duration                    // the longest usual time between two messages of an agent
	left   map[cluster.ExecutorID]time.Time // when the agents whose streams broke had sent their last messages
	known  map[cluster.ExecutorID]bool      // the lifecycle knows that they are silent
	looked time.Time                        // the last watchSilence
}

// watchSilence reports to the lifecycle for how long agents have been silent. It is called once a heartbeat.
func (c *Coordinator) watchSilence(now time.Time) {
	s := &c.execs.silences
	if late := now.Sub(s.looked) - c.cfg.Timing.Heartbeat; !s.looked.IsZero() && late > 0 {
		c.execs.credit(late, now) // messages may wait until this process, which was stopped or busy, has read them
	}
	s.looked = now
	for _, x := range c.lc.Executors() {
		if x.State < lifecycle.ExecutorJoined || x.State == lifecycle.ExecutorLost {
			delete(s.known, x.ID)
			continue
		}
		d := c.execs.silence(x.ID, now)
		switch {
		case d > 0:
			s.known[x.ID] = true
		case s.known[x.ID]:
			delete(s.known, x.ID)
		default:
			continue
		}
		c.handle(lifecycle.AgentSilent{Exec: x.ID, For: d})
	}
}

// credit shortens the silence of every agent by a time in which this process read no messages. Loop only.
func (e *executors) credit(d time.Duration, now time.Time) {
	for _, conn := range e.agents {
		conn.heard = conn.heard.Add(min(d, now.Sub(conn.heard)))
	}
	for id, heard := range e.left {
		e.left[id] = heard.Add(min(d, now.Sub(heard)))
	}
}

// silence returns how long an agent has been silent, if that is longer than usual; otherwise 0. Loop only.
func (e *executors) silence(id cluster.ExecutorID, now time.Time) time.Duration {
	heard, ok := e.left[id]
	if conn := e.agents[id]; conn != nil {
		heard, ok = conn.heard, true
	}
	if d := now.Sub(heard); ok && d > e.usual {
		return d
	}
	return 0
}

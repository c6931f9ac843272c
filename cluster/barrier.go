package cluster

import (
	"fmt"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// barrier is a name at which tasks of a run's attempt wait for one another.
type barrier struct {
	run     int32
	attempt int
	name    string
	arrived map[TaskID]bool
	came    int // chiefs and workers among them
}

// arrive notes that a task waits at a barrier. Loop only.
func (c *Coordinator) arrive(b *clusterpb.BarrierArrived) {
	r := c.lc.run
	id, err := ParseTask(b.GetTask())
	if err != nil || r == nil || r.spec.id != b.GetRun() || r.attempt != int(b.GetAttempt())%loneRestart {
		return
	}
	key := fmt.Sprintf("%d.%d/%s", b.GetRun(), r.attempt, b.GetName())
	if c.barriers[key] == nil {
		c.barriers[key] = &barrier{run: b.GetRun(), attempt: r.attempt, name: b.GetName(), arrived: map[TaskID]bool{}}
	}
	c.barriers[key].arrive(id)
	c.openBarriers()
}

func (b *barrier) arrive(id TaskID) {
	if !b.arrived[id] && (id.Role == Chief || id.Role == Worker) {
		b.came++
	}
	b.arrived[id] = true
}

// awaits is whether somebody is missing who will come in any case, as far as the counts of
// tasks tell: it spares a look at each task for each that arrives.
func (b *barrier) awaits(r *run) bool {
	missing := -b.came
	for _, role := range []string{Chief, Worker} {
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

// openBarriers releases those who wait at a barrier once every chief and worker has
// come, or one has ended and never will. Barriers of earlier attempts are forgotten.
// Loop only.
func (c *Coordinator) openBarriers() {
	for key, b := range c.barriers {
		r := c.lc.run
		if r.spec.id != b.run || r.attempt != b.attempt {
			delete(c.barriers, key)
			continue
		}
		if problem, open := b.opens(c.lc); open {
			c.releaseBarrier(b, problem)
			delete(c.barriers, key)
		}
	}
}

// opens is whether nobody is waited for any more; problem says who never comes. One that
// begins only when tasks that may wait here have ended is among those.
func (b *barrier) opens(l *lifecycle) (problem string, open bool) {
	if b.awaits(l.run) {
		return "", false
	}
	open = true
	for _, t := range l.run.tasks {
		if (t.id.Role != Chief && t.id.Role != Worker) || b.arrived[t.id] {
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

func (c *Coordinator) releaseBarrier(b *barrier, problem string) {
	for _, conn := range c.agents {
		conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Barrier{
			Barrier: &clusterpb.BarrierReleased{Run: b.run, Name: b.name, Error: problem},
		}})
	}
}

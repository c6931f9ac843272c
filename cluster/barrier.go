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
}

// arrive notes that a task waits at a barrier. Loop only.
func (c *Coordinator) arrive(b *clusterpb.BarrierArrived) {
	r := c.lc.Run()
	id, err := ParseTask(b.GetTask())
	if err != nil || r == nil || r.spec.id != b.GetRun() || r.attempt != int(b.GetAttempt())%loneRestart {
		return
	}
	key := fmt.Sprintf("%d.%d/%s", b.GetRun(), r.attempt, b.GetName())
	if c.barriers[key] == nil {
		c.barriers[key] = &barrier{run: b.GetRun(), attempt: r.attempt, name: b.GetName(), arrived: map[TaskID]bool{}}
	}
	c.barriers[key].arrived[id] = true
	c.openBarriers()
}

// openBarriers releases those who wait at a barrier once every chief and worker has
// come, or one has ended and never will. Barriers of earlier attempts are forgotten.
// Loop only.
func (c *Coordinator) openBarriers() {
	for key, b := range c.barriers {
		r := c.lc.Run()
		if r.spec.id != b.run || r.attempt != b.attempt {
			delete(c.barriers, key)
			continue
		}
		if problem, open := c.lc.opens(b.arrived); open {
			c.releaseBarrier(b, problem)
			delete(c.barriers, key)
		}
	}
}

func (c *Coordinator) releaseBarrier(b *barrier, problem string) {
	for _, conn := range c.agents {
		conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Barrier{
			Barrier: &clusterpb.BarrierReleased{Run: b.run, Name: b.name, Error: problem},
		}})
	}
}

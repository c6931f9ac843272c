package coordinator

import (
	"fmt"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// barrier is a barrier of a run's attempt, with the tasks that have arrived.
type barrier struct {
	run     int32
	attempt int
	name    string
	arrived map[cluster.TaskID]bool
	came    int // chiefs and workers that have arrived
}

// arrive records that a task waits at a barrier. Loop only.
func (c *Coordinator) arrive(b *clusterpb.BarrierArrived) {
	r := c.lc.Run()
	id, err := cluster.ParseTask(b.GetTask())
	if err != nil || r == nil || r.Spec.ID != b.GetRun() || r.Attempt != int(b.GetAttempt())%lifecycle.LoneRestart {
		return
	}
	key := fmt.Sprintf("%d.%d/%s", b.GetRun(), r.Attempt, b.GetName())
	at := c.runs.barriers[key]
	if at == nil {
		at = &barrier{run: b.GetRun(), attempt: r.Attempt, name: b.GetName(), arrived: map[cluster.TaskID]bool{}}
		c.runs.barriers[key] = at
	}
	if !at.arrived[id] && cluster.Trains(id.Role) {
		at.came++
	}
	at.arrived[id] = true
	c.openBarriers()
}

// openBarriers opens each barrier at which every chief and worker has arrived, and fails it if
// one of them has ended. Barriers of earlier attempts are dropped. Loop only.
func (c *Coordinator) openBarriers() {
	for key, b := range c.runs.barriers {
		r := c.lc.Run()
		if r.Spec.ID != b.run || r.Attempt != b.attempt {
			delete(c.runs.barriers, key)
			continue
		}
		if problem, open := c.lc.BarrierOpens(b.arrived, b.came); open {
			c.execs.releaseBarrier(b, problem)
			delete(c.runs.barriers, key)
		}
	}
}

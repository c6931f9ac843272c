package coordinator

import (
	"sync/atomic"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// executors is what the coordinator knows of the executors beside their state, which the
// lifecycle has. Owned by the loop, but for generation.
type executors struct {
	agents     map[cluster.ExecutorID]*agentConn
	hellos     map[cluster.ExecutorID]*clusterpb.Hello
	granted    map[cluster.ExecutorID]cluster.Granted
	owed       map[cluster.ExecutorID]owing // files of the last task, to be sent by executors with disks of their own
	pythons    pythons                      // that the agents tell of
	generation atomic.Int32                 // of the executors' Pythons: how often reset --hard was asked for; read by any goroutine
}

func newExecutors() executors {
	return executors{
		agents: map[cluster.ExecutorID]*agentConn{}, hellos: map[cluster.ExecutorID]*clusterpb.Hello{},
		granted: map[cluster.ExecutorID]cluster.Granted{}, owed: map[cluster.ExecutorID]owing{},
	}
}

// owes notes at a launch that files are to come. Loop only.
func (e *executors) owes(x *lifecycle.Executor, run, launch int32) {
	if e.hellos[x.ID].GetOwnDisk() {
		e.owed[x.ID] = owing{run, x.Attempt, launch}
	}
}

func (e *executors) releaseBarrier(b *barrier, problem string) {
	for _, conn := range e.agents {
		conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Barrier{
			Barrier: &clusterpb.BarrierReleased{Run: b.run, Name: b.name, Error: problem},
		}})
	}
}

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

// statuses is how each executor stands. Loop only.
func (e *executors) statuses(all []*lifecycle.Executor) []*clusterpb.ExecutorStatus {
	var out []*clusterpb.ExecutorStatus
	for _, x := range all {
		s := &clusterpb.ExecutorStatus{
			Id: string(x.ID), Task: x.Task.String(), State: x.State.String(), Host: x.Host, Port: x.Port, Cause: x.Why, Attempt: int32(x.Attempt),
			Pid: int32(e.granted[x.ID].PID),
		}
		if x.State == lifecycle.ExecutorJoined {
			s.State = "warming"
		}
		if h := e.hellos[x.ID]; h != nil && x.State >= lifecycle.ExecutorJoined && x.State != lifecycle.ExecutorLost {
			s.Gpus, s.Python, s.Pid = h.GetGpus(), h.GetPython(), h.GetPid()
			if s.Port == 0 && len(h.GetPorts()) > 0 {
				s.Port = h.GetPorts()[0]
			}
		}
		out = append(out, s)
	}
	return out
}

package coordinator

import (
	"sync/atomic"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// executors is data about the executors that the lifecycle does not have. Owned by the loop,
// except generation.
type executors struct {
	agents       map[cluster.ExecutorID]*agentConn
	hellos       map[cluster.ExecutorID]*clusterpb.Hello
	granted      map[cluster.ExecutorID]cluster.Granted
	pendingFiles map[cluster.ExecutorID]pendingFiles // files that executors with disks of their own still have to send
	pythons      pythons                             // as agents reported them
	generation   atomic.Int32                        // of the executors' Pythons: the number of reset --hard; read by any goroutine
}

func newExecutors() executors {
	return executors{
		agents: map[cluster.ExecutorID]*agentConn{}, hellos: map[cluster.ExecutorID]*clusterpb.Hello{},
		granted: map[cluster.ExecutorID]cluster.Granted{}, pendingFiles: map[cluster.ExecutorID]pendingFiles{},
	}
}

// expectFiles records at a launch that an executor with its own disk will send files. Loop
// only.
func (e *executors) expectFiles(x *lifecycle.Executor, run, launch int32) {
	if e.hellos[x.ID].GetOwnDisk() {
		e.pendingFiles[x.ID] = pendingFiles{run, x.Attempt, launch}
	}
}

func (e *executors) releaseBarrier(b *barrier, problem string) {
	for _, conn := range e.agents {
		conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Barrier{
			Barrier: &clusterpb.BarrierReleased{Run: b.run, Name: b.name, Error: problem},
		}})
	}
}

// statuses returns the status of each executor. Loop only.
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

package agent

import (
	"context"
	"time"

	"github.com/tfcluster/tfcluster/cluster/agent/proc"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// takeSnapshots answers with a snapshot of each task of the run.
func (a *Agent) takeSnapshots(_ context.Context, asked *clusterpb.TakeSnapshot) {
	for _, t := range a.tasksOf(asked.GetRun()) {
		a.work.Go(func() {
			s := t.snapshot()
			s.Host, s.ExecutorId = a.self.host, a.cfg.GetIdentity().GetExecutorId()
			a.link.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Snapshot{Snapshot: &clusterpb.SnapshotTaken{Round: asked.GetRound(), Snapshot: s}}})
		})
	}
}

// snapshot returns what the task is doing.
func (t *task) snapshot() *clusterpb.Snapshot {
	s := &clusterpb.Snapshot{
		Task: t.launch.GetTask(), Run: t.launch.GetRun(), Attempt: t.launch.GetAttempt(), Pid: int32(t.pid()), UnixNano: time.Now().UnixNano(), Source: "proc",
	}
	stat, ok := proc.Read(int(s.GetPid()))
	if !ok {
		s.Pid, s.Error = 0, "its program has ended, or has not been started yet"
		return s
	}
	s.Process = &clusterpb.ProcessState{Pid: s.GetPid(), Parent: int32(stat.Parent), State: stat.State, RssBytes: stat.RSS}
	return s
}

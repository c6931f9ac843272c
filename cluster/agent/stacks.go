package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster/agent/snapshot"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// newSampler returns what takes snapshots of the task. Only Python answers questions.
func (t *task) newSampler() *snapshot.Sampler {
	if !t.readsControl() {
		return snapshot.NewSampler(nil)
	}
	return snapshot.NewSampler(func(question int32) bool {
		return t.sendControl(map[string]any{"op": "stacks", "question": question})
	})
}

// stacksReady records that faulthandler is installed in the task for a signal.
func (t *task) stacksReady(r snapshot.Registration) {
	if err := t.stacks.Register(t.pid(), r); err != nil {
		t.note(fmt.Sprintf("its stacks cannot be shown while a thread holds the GIL: %v", err), false)
	}
}

// latest returns the last attempt of each task. Earlier ones of a worker that is restarted alone are kept until the run
// ends.
func latest(tasks []*task) []*task {
	var last []*task
	for _, t := range tasks {
		if !slices.ContainsFunc(tasks, func(other *task) bool {
			return other.launch.GetTask() == t.launch.GetTask() && other.launch.GetAttempt() > t.launch.GetAttempt()
		}) {
			last = append(last, t)
		}
	}
	return last
}

// takeSnapshot answers with a snapshot of a task.
func (a *Agent) takeSnapshot(ctx context.Context, t *task, asked *clusterpb.TakeSnapshot) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(asked.GetTimeoutMillis())*time.Millisecond)
	defer cancel()
	l := t.launch
	s := &clusterpb.Snapshot{Error: "its program is still being started"}
	if pid := t.pid(); pid != 0 {
		s = t.stacks.Take(ctx, pid)
	} else if closed(t.done) {
		s.Error = "its program has ended"
	}
	if asked.GetNative() && s.GetPid() != 0 {
		var err error
		if s.Native, err = snapshot.Native(ctx, int(s.GetPid()),
			filepath.Dir(a.python.Describe().GetExecutable())); err != nil {
			s.NativeError = err.Error()
		}
	}
	s.Task, s.Run, s.Attempt, s.Host, s.ExecutorId = l.GetTask(), l.GetRun(), l.GetAttempt(), a.self.host,
		a.cfg.GetIdentity().GetExecutorId()
	if asked.GetToLog() {
		t.output.log.Add(t.logged(s))
	}
	if asked.GetRound() != 0 {
		a.link.send(&clusterpb.AgentMessage{
			Message: &clusterpb.AgentMessage_Snapshot{Snapshot: &clusterpb.SnapshotTaken{Round: asked.GetRound(), Snapshot: s}},
		})
	}
}

// logged returns a snapshot as lines of the task's standard error.
func (t *task) logged(s *clusterpb.Snapshot) []*clusterpb.Line {
	var lines []*clusterpb.Line
	for _, text := range snapshot.Text(s) {
		lines = append(lines,
			&clusterpb.Line{Stream: clusterpb.Line_STDERR, UnixNano: time.Now().UnixNano(), Text: text, Task: t.output.task})
	}
	return lines
}

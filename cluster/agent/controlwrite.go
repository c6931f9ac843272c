package agent

import (
	"errors"
	"os"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// controlTimeout bounds the time in which a program takes a line.
const controlTimeout = time.Second

// sendControl writes a line to the task's control socket and reports whether it succeeded.
// After a write timed out nothing more is written.
func (t *task) sendControl(message map[string]any) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.proc.control == nil {
		return false
	}
	err := t.proc.control.Write(message)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.proc.control = nil
	}
	return err == nil
}

// readsControl returns whether the program reads its control socket: Python does, a plain
// command does not.
func (t *task) readsControl() bool {
	return t.launch.GetProgram().GetKind() != clusterpb.Program_COMMAND
}

// sendStop tells the program that SIGTERM was sent, in case the signal does not reach its
// handler. For a program that does not read its control socket it reports Stopping.
func (t *task) sendStop() {
	if t.readsControl() && t.sendControl(map[string]any{"op": "stop"}) {
		return
	}
	t.emit(t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Stopping{Stopping: &clusterpb.Stopping{}}}))
}

// askStep asks the program for its step. For one that does not read its control socket it
// reports that it has none.
func (t *task) askStep(round int32) {
	if t.readsControl() && t.sendControl(map[string]any{"op": "ask_step", "round": round}) {
		return
	}
	t.emit(t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Step{Step: &clusterpb.Step{Round: round}}}))
}

// actAtStep asks the program to act at the end of a step, or confirms that.
func (t *task) actAtStep(a *clusterpb.ActAtStep) {
	if a.GetAction() == clusterpb.ActAtStep_STOP {
		t.sendControl(map[string]any{
			"op": "act_at_step", "round": a.GetRound(), "counter": a.GetCounter(), "step": a.GetStep(),
			"confirmed": a.GetConfirmed(),
		})
	}
}

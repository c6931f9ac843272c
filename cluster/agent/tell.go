package agent

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// tell writes a line to the task's control socket, and returns whether it could. A task
// that does not read is given up on, never waited for.
func (t *task) tell(message map[string]any) bool {
	line, err := json.Marshal(message)
	if err != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.proc.control == nil {
		return false
	}
	_ = t.proc.control.SetWriteDeadline(time.Now().Add(time.Second))
	_, err = t.proc.control.Write(append(line, '\n'))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.proc.control = nil
	}
	return err == nil
}

// listens is whether the task's program reads its control socket: Python does, a plain
// command does not.
func (t *task) listens() bool { return t.launch.GetProgram().GetKind() != clusterpb.Program_COMMAND }

// sayStop tells a program that SIGTERM was sent, in case the signal does not reach its
// handler. Of a program that does not listen, it is taken that it has.
func (t *task) sayStop() {
	if t.listens() && t.tell(map[string]any{"op": "stop"}) {
		return
	}
	t.emit(t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Stopping{Stopping: &clusterpb.Stopping{}}}))
}

// askStep has the program say which step it has ended. One that does not listen reports none.
func (t *task) askStep(round int32) {
	if t.listens() && t.tell(map[string]any{"op": "ask_step", "round": round}) {
		return
	}
	t.emit(t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Step{Step: &clusterpb.Step{Round: round}}}))
}

// actAtStep has the program agree to act at the end of a step, or act there.
func (t *task) actAtStep(a *clusterpb.ActAtStep) {
	if a.GetAction() == clusterpb.ActAtStep_STOP {
		t.tell(map[string]any{"op": "act_at_step", "round": a.GetRound(), "counter": a.GetCounter(), "step": a.GetStep(), "confirmed": a.GetConfirmed()})
	}
}

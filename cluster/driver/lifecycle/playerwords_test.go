package lifecycle

import (
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func remedyLine(f *clusterpb.Failure) string {
	if f.GetRemedy() == "" {
		return ""
	}
	return "  next: " + f.GetRemedy() + "\n"
}

func failureOf(r *Run) *clusterpb.Failure {
	if r == nil {
		return nil
	}
	return r.Failure
}

func overWords(r *Run) string {
	if r == nil {
		return "never started"
	}
	s := r.State.String()
	if r.Failure != nil {
		s += fmt.Sprintf(" (%s, code %d): %s", r.Failure.GetKind(), r.Failure.GetExitCode(), r.Failure.GetSummary())
	}
	return s
}

func instructionWords(in *clusterpb.Instruction) string {
	switch i := in.GetInstruction().(type) {
	case *clusterpb.Instruction_Prepare:
		return fmt.Sprintf("prepare %d.%d", i.Prepare.GetRun(), i.Prepare.GetAttempt())
	case *clusterpb.Instruction_EndRun:
		return fmt.Sprintf("end %d within %s", i.EndRun.GetRun(), time.Duration(i.EndRun.GetGraceMillis())*time.Millisecond)
	case *clusterpb.Instruction_Release:
		return "release"
	case *clusterpb.Instruction_TakeSnapshot:
		return fmt.Sprintf("take snapshot %d within %s, to its log: %t", i.TakeSnapshot.GetRun(),
			time.Duration(i.TakeSnapshot.GetTimeoutMillis())*time.Millisecond, i.TakeSnapshot.GetToLog())
	case *clusterpb.Instruction_Probe:
		return "probe"
	case *clusterpb.Instruction_TrainingOver:
		return "training over"
	case *clusterpb.Instruction_AskStep:
		return "ask step"
	case *clusterpb.Instruction_ActAtStep:
		words := fmt.Sprintf("%s at step %d of %s", i.ActAtStep.GetAction(), i.ActAtStep.GetStep(), i.ActAtStep.GetCounter())
		if i.ActAtStep.GetConfirmed() {
			words += ", confirmed"
		}
		return words
	}
	return fmt.Sprintf("%T", in.GetInstruction())
}

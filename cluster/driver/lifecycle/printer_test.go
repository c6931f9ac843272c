package lifecycle

import (
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// print prints actions, one a line.
func (p *player) print(actions []Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case ReplaceExecutor:
			where := ""
			if a.Elsewhere {
				where = " elsewhere"
			}
			fmt.Fprintf(&p.out, "replace %s%s\n", a.Exec, where)
		case SendInstruction:
			fmt.Fprintf(&p.out, "send %s %s\n", a.Exec, instructionWords(a.What))
		case SetTimer:
			if a.After > 0 {
				p.armed[a.Name] = true
				fmt.Fprintf(&p.out, "timer %s %s\n", a.Name, a.After)
			} else if p.armed[a.Name] {
				delete(p.armed, a.Name)
				fmt.Fprintf(&p.out, "cancel %s\n", a.Name)
			}
		case ReservationReady:
			fmt.Fprintln(&p.out, "ready")
		case ReservationFailed:
			fmt.Fprintf(&p.out, "not reserved: %s\n%s", a.Failure.GetSummary(), remedyLine(a.Failure))
		case Note:
			fmt.Fprintf(&p.out, "note: %s\n", a.Text)
		case Release:
			fmt.Fprintf(&p.out, "release: %s\n", a.Reason)
		case LaunchTask:
			fmt.Fprintf(&p.out, "launch %s at %s\n", a.Task, a.Exec)
		case RunEntered:
			fmt.Fprintln(&p.out, "run entered")
		case RunOver:
			fmt.Fprintf(&p.out, "run over: %s\n%s", overWords(p.l.run), remedyLine(failureOf(p.l.run)))
		case StartFailed:
			fmt.Fprintf(&p.out, "start failed: %s\n%s", a.Failure.GetSummary(), remedyLine(a.Failure))
		case RunGone:
			fmt.Fprintln(&p.out, "run gone")
		}
	}
}

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

func (p *player) state() {
	fmt.Fprintf(&p.out, "cluster %s\n", p.l.state)
	for _, x := range p.l.execs {
		fmt.Fprintf(&p.out, "  %s %s %s busy=%t %s\n", x.ID, x.Task, x.State, x.Busy, x.Why)
	}
	if r := p.l.run; r != nil {
		fmt.Fprintf(&p.out, "run %d %s restarts=%d\n", r.Spec.ID, r.State, r.Restarts)
		if p.holdFiles {
			fmt.Fprintf(&p.out, "  awaits %s\n", p.l.RunAwaits())
		}
		for _, t := range r.Tasks {
			state := t.State.String()
			if t.State == TaskWaiting && t.Awaits != "" {
				state += " for " + t.Awaits
			}
			fmt.Fprintf(&p.out, "  %s %s echo=%t\n", t.ID, state, t.Echo)
		}
	}
}

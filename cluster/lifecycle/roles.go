package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// policy is a role's; by its name alone where the cluster was made without.
func (l *Machine) policy(role string) Policy {
	if p, ok := l.roles[role]; ok {
		return p
	}
	return policyOf(&clusterpb.Role{Name: role}, l.limits)
}

// alive is whether a task is launched, or still to be.
func (t *Task) alive() bool {
	return t.State == TaskWaiting || t.State == TaskLaunching || t.State == TaskRunning
}

// launchDue launches the tasks whose turn it is: those that wait for no role, or for
// none any more.
func (l *Machine) launchDue() {
	r := l.run
	if r == nil || (r.State != RunLaunching && r.State != RunRunning) || r.Stopping {
		return
	}
	if !l.turns() {
		return
	}
	late := false
	for _, x := range l.execs {
		t := r.task(x.Task)
		if t.State != TaskWaiting {
			continue
		}
		t.Awaits = r.count[t.ID.Role].awaits
		if t.Awaits == "" && x.State == ExecutorReady { // one that is silent may come back, and is given it then
			l.launch(x, true)
			late = late || r.State == RunRunning
		}
	}
	if late {
		l.do(SetTimer{"enter", l.limits.enter})
		if r.Spec.Options.StepTimeout() > 0 { // who begins now has the whole of it
			r.stacks = false
			l.do(SetTimer{"step", r.Spec.Options.StepTimeout()})
		}
		l.do(RunChanged{})
	}
}

// training is whether steps can be expected: a stage before or behind the chief and the
// workers takes none. Where there are neither, every role's are.
func (r *Run) training() bool {
	theirs := true
	for _, t := range r.Tasks {
		if t.ID.Role == cluster.Chief || t.ID.Role == cluster.Worker {
			if t.State == TaskLaunching || t.State == TaskRunning {
				return true
			}
			theirs = false
		}
	}
	return theirs
}

// turns looks for whom the tasks wait that are to be launched, and tells whether it is
// some role's turn, or another's to be waited for.
func (l *Machine) turns() bool {
	changed := false
	for role, n := range l.run.count {
		if n.waiting == 0 {
			continue
		}
		before := n.awaits
		n.awaits = l.awaits(role)
		changed = changed || n.awaits == "" || n.awaits != before
	}
	return changed
}

// awaits is the role that the tasks of a role wait for, "" when those before it are where
// they must be: the tasks of a tracked role have ended well, those of another, which never
// ends by itself, are in their program. One of those that failed is no reason to wait.
func (l *Machine) awaits(role string) string {
	for _, before := range l.policy(role).after {
		n := l.run.count[before]
		switch {
		case n == nil:
		case n.waiting+n.launching > 0, l.policy(before).kind == cluster.Tracked && !l.through(before):
			return before
		}
	}
	return ""
}

// through is whether nobody waits for the ends of a tracked role's tasks any more: they
// have ended, or never will by themselves. A failure that has not closed the run is one
// that it goes on without, unless the verdict is still to come.
func (l *Machine) through(role string) bool {
	r := l.run
	return r.count[role].alive() == r.serving(role) && !slices.ContainsFunc(r.echoes, func(t *Task) bool { return t.ID.Role == role })
}

// serves is whether a worker is in tf.distribute.Server.join(), for a chief that has ended.
func (l *Machine) serves(t *Task) bool {
	chief := l.run.task(cluster.TaskID{Role: cluster.Chief})
	return t.joinedServer && t.ID.Role == cluster.Worker && chief != nil && !chief.alive()
}

// checkDone closes the run once those it waits for have ended. Parameter servers and
// workers that wait in tf.distribute.Server.join() never end by themselves; roles with
// a limit of their own get that long.
func (l *Machine) checkDone() {
	r := l.run
	if r == nil || !r.State.Open() || r.Stopping || r.State == RunRestarting {
		return
	}
	chief := r.task(cluster.TaskID{Role: cluster.Chief})
	if chief != nil && !(chief.State == TaskExited && succeeded(chief.Exit)) {
		return
	}
	last := 0 // alive, and given a while
	for role, n := range r.count {
		p, alive := l.policy(role), n.alive()-r.serving(role)
		switch {
		case alive == 0 || n.overdue:
		case p.endWithin > 0:
			last += alive
		case p.kind == cluster.Tracked:
			return
		}
	}
	switch {
	case len(r.echoes) > 0:
	case last == 0:
		l.outcome("finished", nil, l.limits.failGrace)
	case !r.over:
		l.lastOnes()
	}
}

// lastOnes starts the clocks of the tasks that are left when training is over. The
// others are ended, unless one of the former may still need them.
func (l *Machine) lastOnes() {
	r := l.run
	r.over = true
	l.do(SetTimer{"step", 0})
	var roles []string
	needed := false
	for _, t := range r.Tasks {
		p := l.policy(t.ID.Role)
		if !t.alive() || p.endWithin == 0 || l.serves(t) {
			continue
		}
		needed = needed || p.kind != cluster.Sidecar
		if !slices.Contains(roles, t.ID.Role) {
			roles = append(roles, t.ID.Role)
			l.do(SetTimer{"end " + t.ID.Role, p.endWithin})
		}
	}
	for _, x := range l.execs {
		switch {
		case !x.Busy:
		case x.Task.Role == cluster.Evaluator:
			l.do(SendInstruction{x.ID, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_TrainingOver{TrainingOver: &clusterpb.TrainingOver{Run: r.Spec.ID}}}})
		case !needed && !slices.Contains(roles, x.Task.Role):
			l.end(x, l.limits.failGrace)
		}
	}
	l.do(RunChanged{})
}

// notEnded is what becomes of a role whose while is over: a tracked one fails the
// run, another is ended with it.
func (l *Machine) notEnded(role string) {
	r := l.run
	if !r.over || !r.State.Open() || r.Stopping {
		return
	}
	p := l.policy(role)
	if r.count[role].overdue {
		return
	}
	var left []string
	var first *Task
	for _, t := range r.Tasks {
		if t.ID.Role == role && t.alive() {
			left = append(left, t.ID.String())
			if first == nil {
				first = t
			}
		}
	}
	if first == nil {
		return
	}
	r.count[role].overdue = true
	if p.kind == cluster.Tracked {
		l.outcome("failed", &clusterpb.Failure{
			Kind: "run_timeout", ExitCode: 124, Task: first.ID.String(), Host: l.Executor(first.exec).Host,
			Summary: fmt.Sprintf("%s did not end within %s of the others (--%s-end-within)", strings.Join(left, ", "), p.endWithin, role),
			Remedy:  fmt.Sprintf("give it more time, or --%s-kind untracked to finish without it", role),
		}, l.limits.failGrace)
		return
	}
	who := strings.Join(left, ", ")
	if role == cluster.Evaluator {
		who = "the evaluator"
	}
	l.note(true, "%s did not end within %s of the training's end and was ended", who, p.endWithin)
	l.checkDone()
}

// endTimers are the names of the clocks that lastOnes may have started.
func (l *Machine) endTimers() []string {
	var names []string
	for _, x := range l.execs {
		if name := "end " + x.Task.Role; !slices.Contains(names, name) && l.policy(x.Task.Role).endWithin > 0 {
			names = append(names, name)
		}
	}
	return names
}

// waits is whether an executor's task is still to be launched in the active run, at
// the address that the others were told.
func (l *Machine) waits(x *Executor) bool {
	if l.run == nil || (l.run.State != RunLaunching && l.run.State != RunRunning) {
		return false
	}
	return l.run.task(x.Task).State == TaskWaiting
}

// launching is whether a task has not entered its program though its turn has come.
func (r *Run) launching() bool {
	for _, n := range r.count {
		if n.launching > 0 || (n.waiting > 0 && n.awaits == "") {
			return true
		}
	}
	return false
}

func (t *Task) entering() bool {
	return t.State == TaskLaunching || (t.State == TaskWaiting && t.Awaits == "")
}

// notEnteredBy is a start's failure because of the tasks that were launched and did not
// enter their program in time.
func (r *Run) notEnteredBy(limit time.Duration) *clusterpb.Failure {
	var who []string
	for _, t := range r.Tasks {
		if t.entering() {
			who = append(who, t.ID.String())
		}
	}
	slices.Sort(who)
	return &clusterpb.Failure{
		Kind: "timeout", ExitCode: 124,
		Summary: fmt.Sprintf("not every task entered the program within %s; missing: %v", limit, who),
		Remedy:  "%tfcluster logs shows what they wrote; %tfcluster reset frees what hangs",
	}
}

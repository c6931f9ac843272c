package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// policy returns the policy of a role; if the cluster has no such role, the default for the
// name.
func (l *Machine) policy(role string) Policy {
	if p, ok := l.roles[role]; ok {
		return p
	}
	return policyOf(&clusterpb.Role{Name: role}, l.limits)
}

// alive reports whether a task runs or is still to be launched.
func (t *Task) alive() bool {
	return t.State == TaskWaiting || t.State == TaskLaunching || t.State == TaskRunning
}

// launchDue launches the waiting tasks whose dependencies are met.
func (l *Machine) launchDue() {
	r := l.run
	if r == nil || (r.State != RunLaunching && r.State != RunRunning) || r.Stopping {
		return
	}
	if !l.updateAwaits() {
		return
	}
	late := false
	for _, x := range l.execs {
		t := r.task(x.Task)
		if t.State != TaskWaiting {
			continue
		}
		t.Awaits = r.count[t.ID.Role].awaits
		if t.Awaits == "" && x.State == ExecutorReady { // a silent agent may reconnect; the task is launched then
			l.launch(x)
			late = late || r.State == RunRunning
		}
	}
	if late {
		l.do(SetTimer{"enter", l.limits.enter})
		l.awaitStep(r) // a task that begins now has the full step timeout
		l.do(RunChanged{})
	}
}

// training reports whether steps can be expected: only the chief and workers make steps, or
// every role if the run has neither.
func (r *Run) training() bool {
	theirs := true
	for _, t := range r.Tasks {
		if cluster.Trains(t.ID.Role) {
			if t.State == TaskLaunching || t.State == TaskRunning {
				return true
			}
			theirs = false
		}
	}
	return theirs
}

// updateAwaits updates the role that each role's waiting tasks wait for. It reports whether a
// role can be launched or waits for another role than before.
func (l *Machine) updateAwaits() bool {
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

// awaits returns the first role that the tasks of a role must wait for, or "" if its
// dependencies are met: tasks of a tracked role must have succeeded, tasks of another kind,
// which never end by themselves, must be in their program. A failed dependency does not block.
func (l *Machine) awaits(role string) string {
	for _, before := range l.policy(role).after {
		n := l.run.count[before]
		if n != nil && (n.waiting+n.launching > 0 || l.policy(before).kind == cluster.Tracked && !l.ended(before)) {
			return before
		}
	}
	return ""
}

// ended reports whether all tasks of a tracked role have ended or, as servers, never end by
// themselves. A failed task counts as ended if the run continues without it, but not while its
// root cause is undecided.
func (l *Machine) ended(role string) bool {
	r := l.run
	return r.count[role].alive() == r.serving(role) &&
		!slices.ContainsFunc(r.echoes, func(t *Task) bool { return t.ID.Role == role })
}

// serves reports whether a worker is in tf.distribute.Server.join() for a chief that has ended.
func (l *Machine) serves(t *Task) bool {
	chief := l.run.task(cluster.TaskID{Role: cluster.Chief})
	return t.JoinedServer && t.ID.Role == cluster.Worker && chief != nil && !chief.alive()
}

// checkDone closes the run once the tasks that it waits for have ended. Parameter servers and
// workers in tf.distribute.Server.join() never end by themselves. Roles with a limit
// (--ROLE-end-within) may continue for that long.
func (l *Machine) checkDone() {
	r := l.run
	if r == nil || !r.State.Open() || r.Stopping || r.State == RunRestarting {
		return
	}
	chief := r.task(cluster.TaskID{Role: cluster.Chief})
	if chief != nil && !(chief.State == TaskExited && succeeded(chief.Exit)) {
		return
	}
	last := 0 // tasks alive within their limit
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
		l.closeRun("finished", nil, l.limits.failGrace)
	case !r.over:
		l.startEndTimers()
	}
}

// startEndTimers starts the end-within timers of the remaining tasks when training is over. The
// other tasks are ended now, unless a remaining task may still need them.
func (l *Machine) startEndTimers() {
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
			l.do(SendInstruction{x.ID, &clusterpb.Instruction{
				Instruction: &clusterpb.Instruction_TrainingOver{TrainingOver: &clusterpb.TrainingOver{Run: r.Spec.ID}},
			}})
		case !needed && !slices.Contains(roles, x.Task.Role):
			l.end(x, l.limits.failGrace)
		}
	}
	l.do(RunChanged{})
}

// endTimeout handles a role whose limit has passed: a tracked role fails the run, another role
// is ended with it.
func (l *Machine) endTimeout(role string) {
	r := l.run
	if !r.over || !r.State.Open() || r.Stopping || r.count[role].overdue {
		return
	}
	p := l.policy(role)
	var left []string
	var first *Task
	for _, t := range r.Tasks {
		if t.ID.Role == role && t.alive() {
			left = append(left, t.ID.String())
			first = cmp.Or(first, t)
		}
	}
	if first == nil {
		return
	}
	r.count[role].overdue = true
	if p.kind == cluster.Tracked {
		l.closeRun("failed", &clusterpb.Failure{
			Kind: "run_timeout", ExitCode: 124, Task: first.ID.String(), Host: l.Executor(first.exec).Host,
			Summary: fmt.Sprintf("%s did not end within %s after the other roles (--%s-end-within)", strings.Join(left, ", "),
				p.endWithin, role),
			Remedy: fmt.Sprintf("raise the limit, or set --%s-kind untracked so that the run finishes without it", role),
		}, l.limits.failGrace)
		return
	}
	who, lost := strings.Join(left, ", "), ""
	if role == cluster.Evaluator {
		who, lost = "the evaluator", ", and its last evaluation may be missing"
	}
	l.note(true, "%s did not end within %s after the end of training and was ended%s; "+
		"reserve --%s-end-within sets that time", who, p.endWithin, lost, role)
	l.checkDone()
}

// endTimers returns the names of the timers that startEndTimers may have started.
func (l *Machine) endTimers() []string {
	var names []string
	for _, x := range l.execs {
		if name := "end " + x.Task.Role; !slices.Contains(names, name) && l.policy(x.Task.Role).endWithin > 0 {
			names = append(names, name)
		}
	}
	return names
}

// awaitsLaunch reports whether an executor's task is still to be launched in the active run, at
// the address that its peers already have.
func (l *Machine) awaitsLaunch(x *Executor) bool {
	if l.run == nil || (l.run.State != RunLaunching && l.run.State != RunRunning) {
		return false
	}
	return l.run.task(x.Task).State == TaskWaiting
}

// launching reports whether a task whose dependencies are met has not entered its program.
func (r *Run) launching() bool {
	for _, n := range r.count {
		if n.launching > 0 || (n.waiting > 0 && n.awaits == "") {
			return true
		}
	}
	return false
}

// notEnteredBy returns the failure of a start in which launched tasks did not enter their
// program in time.
func (r *Run) notEnteredBy(limit time.Duration) *clusterpb.Failure {
	var who []string
	for _, t := range r.Tasks {
		if t.State == TaskLaunching || t.State == TaskWaiting && t.Awaits == "" {
			who = append(who, t.ID.String())
		}
	}
	slices.Sort(who)
	return &clusterpb.Failure{
		Kind: "timeout", ExitCode: 124,
		Summary: fmt.Sprintf("not every task entered the program within %s; missing: %s", limit, strings.Join(who, ", ")),
		Remedy:  "%tfcluster logs shows what they wrote; %tfcluster reset ends processes that hang",
	}
}

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// policy is a role's; by its name alone where the cluster was made without.
func (l *lifecycle) policy(role string) rolePolicy {
	if p, ok := l.roles[role]; ok {
		return p
	}
	return policyOf(&clusterpb.Role{Name: role}, l.limits)
}

// alive is whether a task is launched, or still to be.
func (t *task) alive() bool {
	return t.state == taskWaiting || t.state == taskLaunching || t.state == taskRunning
}

// launchDue launches the tasks whose turn it is: those that wait for no role, or for
// none any more.
func (l *lifecycle) launchDue() {
	r := l.run
	if r == nil || (r.state != runLaunching && r.state != runRunning) || r.stopping {
		return
	}
	if !l.turns() {
		return
	}
	late := false
	for _, x := range l.execs {
		t := r.task(x.task)
		if t.state != taskWaiting {
			continue
		}
		t.awaits = r.count[t.id.Role].awaits
		if t.awaits == "" && x.state == execReady { // one that is silent may come back, and is given it then
			l.launch(x, true)
			late = late || r.state == runRunning
		}
	}
	if late {
		l.do(actTimer{"enter", l.limits.enter})
		if r.spec.stepTimeout > 0 { // who begins now has the whole of it
			r.stacks = false
			l.do(actTimer{"step", r.spec.stepTimeout})
		}
		l.do(actRunChanged{})
	}
}

// training is whether steps can be expected: a stage before or behind the chief and the
// workers takes none. Where there are neither, every role's are.
func (r *run) training() bool {
	theirs := true
	for _, t := range r.tasks {
		if t.id.Role == Chief || t.id.Role == Worker {
			if t.state == taskLaunching || t.state == taskRunning {
				return true
			}
			theirs = false
		}
	}
	return theirs
}

// turns looks for whom the tasks wait that are to be launched, and tells whether it is
// some role's turn, or another's to be waited for.
func (l *lifecycle) turns() bool {
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
func (l *lifecycle) awaits(role string) string {
	for _, before := range l.policy(role).after {
		n := l.run.count[before]
		switch {
		case n == nil:
		case n.waiting+n.launching > 0, l.policy(before).kind == Tracked && !l.through(before):
			return before
		}
	}
	return ""
}

// through is whether nobody waits for the ends of a tracked role's tasks any more: they
// have ended, or never will by themselves. A failure that has not closed the run is one
// that it goes on without, unless the verdict is still to come.
func (l *lifecycle) through(role string) bool {
	r := l.run
	return r.count[role].alive() == r.serving(role) && !slices.ContainsFunc(r.echoes, func(t *task) bool { return t.id.Role == role })
}

// serves is whether a worker is in tf.distribute.Server.join(), for a chief that has ended.
func (l *lifecycle) serves(t *task) bool {
	chief := l.run.task(TaskID{Role: Chief})
	return t.joinedServer && t.id.Role == Worker && chief != nil && !chief.alive()
}

// checkDone closes the run once those it waits for have ended. Parameter servers and
// workers that wait in tf.distribute.Server.join() never end by themselves; roles with
// a limit of their own get that long.
func (l *lifecycle) checkDone() {
	r := l.run
	if r == nil || !r.state.open() || r.stopping || r.state == runRestarting {
		return
	}
	chief := r.task(TaskID{Role: Chief})
	if chief != nil && !(chief.state == taskExited && succeeded(chief.exit)) {
		return
	}
	last := 0 // alive, and given a while
	for role, n := range r.count {
		p, alive := l.policy(role), n.alive()-r.serving(role)
		switch {
		case alive == 0 || n.overdue:
		case p.endWithin > 0:
			last += alive
		case p.kind == Tracked:
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
func (l *lifecycle) lastOnes() {
	r := l.run
	r.over = true
	l.do(actTimer{"step", 0})
	var roles []string
	needed := false
	for _, t := range r.tasks {
		p := l.policy(t.id.Role)
		if !t.alive() || p.endWithin == 0 || l.serves(t) {
			continue
		}
		needed = needed || p.kind != Sidecar
		if !slices.Contains(roles, t.id.Role) {
			roles = append(roles, t.id.Role)
			l.do(actTimer{"end " + t.id.Role, p.endWithin})
		}
	}
	for _, x := range l.execs {
		switch {
		case !x.busy:
		case x.task.Role == Evaluator:
			l.do(actSend{x.id, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_TrainingOver{TrainingOver: &clusterpb.TrainingOver{Run: r.spec.id}}}})
		case !needed && !slices.Contains(roles, x.task.Role):
			l.end(x, l.limits.failGrace)
		}
	}
	l.do(actRunChanged{})
}

// notEnded is what becomes of a role whose while is over: a tracked one fails the
// run, another is ended with it.
func (l *lifecycle) notEnded(role string) {
	r := l.run
	if !r.over || !r.state.open() || r.stopping {
		return
	}
	p := l.policy(role)
	if r.count[role].overdue {
		return
	}
	var left []string
	var first *task
	for _, t := range r.tasks {
		if t.id.Role == role && t.alive() {
			left = append(left, t.id.String())
			if first == nil {
				first = t
			}
		}
	}
	if first == nil {
		return
	}
	r.count[role].overdue = true
	if p.kind == Tracked {
		l.outcome("failed", &clusterpb.Failure{
			Kind: "run_timeout", ExitCode: 124, Task: first.id.String(), Host: l.exec(first.exec).host,
			Summary: fmt.Sprintf("%s did not end within %s of the others (--%s-end-within)", strings.Join(left, ", "), p.endWithin, role),
			Remedy:  fmt.Sprintf("give it more time, or --%s-kind untracked to finish without it", role),
		}, l.limits.failGrace)
		return
	}
	who := strings.Join(left, ", ")
	if role == Evaluator {
		who = "the evaluator"
	}
	l.note(true, "%s did not end within %s of the training's end and was ended", who, p.endWithin)
	l.checkDone()
}

// endTimers are the names of the clocks that lastOnes may have started.
func (l *lifecycle) endTimers() []string {
	var names []string
	for _, x := range l.execs {
		if name := "end " + x.task.Role; !slices.Contains(names, name) && l.policy(x.task.Role).endWithin > 0 {
			names = append(names, name)
		}
	}
	return names
}

// rolePolicies are the policies of a request's roles.
func rolePolicies(roles []*clusterpb.Role, lim limits) map[string]rolePolicy {
	policies := map[string]rolePolicy{}
	for _, r := range roles {
		policies[r.GetName()] = policyOf(r, lim)
	}
	return policies
}

// waits is whether an executor's task is still to be launched in the active run, at
// the address that the others were told.
func (l *lifecycle) waits(x *executor) bool {
	if l.run == nil || (l.run.state != runLaunching && l.run.state != runRunning) {
		return false
	}
	return l.run.task(x.task).state == taskWaiting
}

// launching is whether a task has not entered its program though its turn has come.
func (r *run) launching() bool {
	for _, n := range r.count {
		if n.launching > 0 || (n.waiting > 0 && n.awaits == "") {
			return true
		}
	}
	return false
}

func (t *task) entering() bool {
	return t.state == taskLaunching || (t.state == taskWaiting && t.awaits == "")
}

// notEnteredBy is a start's failure because of the tasks that were launched and did not
// enter their program in time.
func (r *run) notEnteredBy(limit time.Duration) *clusterpb.Failure {
	var who []string
	for _, t := range r.tasks {
		if t.entering() {
			who = append(who, t.id.String())
		}
	}
	slices.Sort(who)
	return &clusterpb.Failure{
		Kind: "timeout", ExitCode: 124,
		Summary: fmt.Sprintf("not every task entered the program within %s; missing: %v", limit, who),
		Remedy:  "%tfcluster logs shows what they wrote; %tfcluster reset frees what hangs",
	}
}

package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// ExecutorState is how far an executor is.
type ExecutorState int

// States of an executor, in the order in which they follow one another.
const (
	ExecutorPending ExecutorState = iota // asked for
	ExecutorGranted                      // the engine gave a place, the agent is on its way
	ExecutorJoined                       // the agent is here, Python is warming
	ExecutorReady                        // a program may start
	ExecutorSilent                       // the agent's stream broke; it may come back
	ExecutorLost                         // gone
)

func (s ExecutorState) String() string {
	return [...]string{"pending", "granted", "joined", "ready", "silent", "lost"}[s]
}

// Executor is one place of the allocation, with the task that lives there.
type Executor struct {
	ID       cluster.ExecutorID
	Task     cluster.TaskID
	State    ExecutorState
	Attempt  int
	Host     string
	Why      string   // what is awaited, or why it was lost
	kept     bool     // what was granted is an earlier driver's agent
	replaced int      // replacements since the last reset
	said     []string // the last lines of the last agent that was lost, where the engine knows them
	agent    executorAgent

	// of the active run
	Port  int32
	Busy  bool // a process of a run is, or may be, alive here
	inRun executorRun
}

// executorAgent is the agent that speaks for an executor.
type executorAgent struct {
	incarnation string
	address     string
	warm        bool
	sudden      bool // its connection broke a moment after it spoke
}

// executorRun is an executor's part in the active run.
type executorRun struct {
	unknown int  // the attempt of a task that the agent came back without
	missed  bool // the word to end it, with its grace, since the agent was silent
	grace   time.Duration
	left    bool // the attempt goes on without it: a sidecar's that did not come back
}

// Expects is whether an agent may join: not one that has been replaced, nor any once
// the cluster is given back.
func (l *Machine) Expects(id cluster.ExecutorID, attempt int) bool {
	x := l.Executor(id)
	return x != nil && attempt >= x.Attempt && l.state < Releasing
}

func (l *Machine) joined(e AgentJoined) {
	if !l.Expects(e.Exec, e.Attempt) {
		return
	}
	x := l.Executor(e.Exec)
	l.do(SetTimer{"silent " + string(x.ID), 0})
	again := x.agent.incarnation == e.Incarnation && x.agent.incarnation != ""
	if !again && (x.Busy || l.waits(x)) {
		// Another process speaks for the executor: what ran there is gone.
		l.taskGone(x, "its agent was replaced")
	}
	x.Attempt, x.agent.incarnation, x.Host, x.agent.address, x.agent.warm = e.Attempt, e.Incarnation, e.Host, e.Address, e.Warm
	l.setState(x, ExecutorJoined)
	x.Why, x.said = "Python is warming up", nil
	if e.Warm {
		l.setState(x, ExecutorReady)
		x.Why = ""
	}
	l.rejoined(x, e.Tasks)
	l.launchDue()
	l.becomeReady()
}

// kept returns how many executors of an earlier driver are there, or on their way back.
func (l *Machine) kept() int {
	n := 0
	for _, x := range l.execs {
		if x.kept || x.State == ExecutorJoined || x.State == ExecutorReady || x.State == ExecutorSilent {
			n++
		}
	}
	return n
}

// anew gives up an executor for the attempt of it that the engine is asked for. Its agent
// is told the reason.
func (l *Machine) anew(x *Executor, attempt int, reason, awaited string) {
	if x == nil || attempt <= x.Attempt || l.state >= Releasing {
		return
	}
	if x.State == ExecutorJoined || x.State == ExecutorReady || x.State == ExecutorSilent {
		l.do(SendInstruction{x.ID, ReleaseInstruction(reason)}, SetTimer{"silent " + string(x.ID), 0})
	}
	x.Attempt, x.agent.incarnation, x.agent.warm, x.Host = attempt, "", false, ""
	l.setState(x, ExecutorPending)
	x.Why = awaited
}

// returned gives up all that a reservation has got so far. What it takes its time for is
// still counted from its beginning.
func (l *Machine) returned(e BackedOff) {
	if l.state >= Releasing {
		return
	}
	for _, x := range l.execs {
		if attempt, ok := e.Attempts[x.ID]; ok {
			l.anew(x, attempt, "its executor is given back to the engine", "given back for a while")
		}
	}
	l.note(false, "%s", e.Why)
}

// becomeReady ends the reservation once nobody is missing, and lets a start that
// waited for a replaced executor go on.
func (l *Machine) becomeReady() {
	if l.takingOver {
		return
	}
	if l.state == Reserving {
		if l.count.unready > 0 {
			return
		}
		l.state = Ready
		l.do(SetTimer{"reserve", 0})
		l.do(ReservationReady{})
	}
	l.advance()
}

// lose takes an executor for gone and asks for another, unless it was lost again
// and again: then only a reset tries anew.
func (l *Machine) lose(x *Executor, cause string) {
	if x.State == ExecutorLost {
		return
	}
	wasHere := x.State == ExecutorReady || x.State == ExecutorJoined || x.State == ExecutorSilent
	l.setState(x, ExecutorLost)
	x.Why, x.agent.warm, x.agent.incarnation = cause, false, ""
	l.do(SetTimer{"silent " + string(x.ID), 0})
	if l.state >= Releasing {
		l.setBusy(x, false)
		return
	}
	l.taskGone(x, "executor lost: "+cause)
	if l.run != nil && l.run.State == RunPreparing && !x.inRun.left { // ports are held anew once all are here again
		l.run.State = RunWaiting
	}
	if x.replaced >= MaxReplacements {
		l.note(true, "executor %s (%s) was lost %d times, the last time: %s. %%tfcluster reset tries again", x.ID, x.Task, x.replaced+1, cause)
		l.giveUp(x)
		return
	}
	if wasHere {
		l.note(true, "executor %s (%s on %s) was lost: %s; asking for another", x.ID, x.Task, x.Host, cause)
	}
	l.replace(x)
}

// MaxReplacements bounds how often one executor is replaced between two runs or resets.
const MaxReplacements = 3

// givenUp is whether an executor is lost and no other is asked for.
func (x *Executor) givenUp() bool { return x.State == ExecutorLost && x.replaced >= MaxReplacements }

// giveUp ends what waits for an executor that does not stay.
func (l *Machine) giveUp(x *Executor) {
	switch {
	case l.state == Reserving:
		l.reserveFailed("engine", l.notKept(x).GetSummary())
	case l.next != nil:
		l.startFailed(l.notKept(x))
	case l.run == nil || !l.run.awaitsExecutors():
	case l.policy(x.Task.Role).kind == cluster.Sidecar:
		l.leave(x)
		l.advance()
	default:
		l.outcome("failed", l.notKept(x), 0)
	}
}

// awaitsExecutors is whether the next attempt begins when every executor is there.
func (r *Run) awaitsExecutors() bool { return r.State == RunRestarting || r.State == RunWaiting }

// leave lets the next attempt begin without a sidecar's executor. Its peers are told
// the address it had, where nobody answers: they would find no other if it died later.
func (l *Machine) leave(x *Executor) {
	if !x.inRun.left {
		l.setLeft(x, true)
		l.note(true, "%s is not waited for: executor %s %s; training goes on without it", x.Task, x.ID, x.whyNot())
	}
}

func (x *Executor) whyNot() string {
	if x.givenUp() {
		return "does not stay: " + x.Why
	}
	return "did not come: " + x.Why
}

// regain asks again for what was given up and a restart cannot do without.
func (l *Machine) regain() {
	for _, x := range l.execs {
		switch {
		case !x.givenUp():
		case l.policy(x.Task.Role).kind == cluster.Sidecar:
			l.leave(x)
		default:
			x.replaced = 0
			l.note(true, "executor %s (%s) was given up, and is needed again: asking for another", x.ID, x.Task)
			l.replace(x)
		}
	}
}

// leaveSidecars lets an attempt begin that waits for sidecars' executors alone. It
// reports false where another is missing.
func (l *Machine) leaveSidecars() bool {
	var late []*Executor
	for _, x := range l.execs {
		switch {
		case x.Busy:
			return false
		case x.State == ExecutorReady || x.inRun.left:
		case l.policy(x.Task.Role).kind != cluster.Sidecar:
			return false
		default:
			late = append(late, x)
		}
	}
	for _, x := range late {
		l.leave(x)
	}
	return len(late) > 0
}

func (l *Machine) notKept(x *Executor) *clusterpb.Failure {
	return &clusterpb.Failure{
		Kind: "engine", Task: x.Task.String(), Host: x.Host, ExitCode: 75, Lines: x.said, Summary: fmt.Sprintf("executor %s for %s does not stay: %s", x.ID, x.Task, x.Why),
		Remedy: "%tfcluster reset asks for it again",
	}
}

func (l *Machine) replace(x *Executor) {
	x.replaced++
	x.Attempt++
	l.setBusy(x, false)
	l.setState(x, ExecutorPending)
	x.agent.incarnation, x.agent.warm = "", false
	l.do(ReplaceExecutor{x.ID})
}

// Missing names who has not come and why, in one line.
func (l *Machine) Missing() string {
	there, who := l.absent(func(x *Executor) bool { return x.State != ExecutorReady })
	line := fmt.Sprintf("%d of %d executors came", there, len(l.execs))
	if l.takingOver {
		line += "; the engine has not said which of them it keeps"
	}
	if who != "" {
		line += "; missing " + who
	}
	return line
}

// RunAwaits returns what a run that starts or restarts waits for, in one line; "" where it waits
// for no executor.
func (l *Machine) RunAwaits() string {
	if l.next == nil && (l.run == nil || !l.run.awaitsExecutors()) {
		return ""
	}
	_, who := l.absent(func(x *Executor) bool { return !x.inRun.left && (x.State != ExecutorReady || x.Busy) })
	return who
}

// absent returns how many executors are there, and the others with the reason of each.
func (l *Machine) absent(missing func(*Executor) bool) (there int, others string) {
	var who []string
	for _, x := range l.execs {
		if !missing(x) {
			there++
			continue
		}
		s, why := x.Task.String(), x.Why
		if x.Host != "" {
			s += " on " + x.Host
		}
		if x.State == ExecutorReady {
			why = "its last task is being ended"
		}
		who = append(who, s+": "+why)
	}
	const most = 5
	if len(who) > most {
		who = append(who[:most], fmt.Sprintf("and %d more", len(who)-most))
	}
	return there, strings.Join(who, "; ")
}

// environmentFailed is the kind of a failure for which no executor can be blamed: what is
// asked for cannot run there.
const environmentFailed = "environment"

func (l *Machine) reserveFailed(kind, why string) {
	l.state = Failed
	l.do(SetTimer{"reserve", 0})
	f := &clusterpb.Failure{Kind: kind, Summary: why, ExitCode: 75}
	for _, x := range l.execs {
		if x.State != ExecutorReady && len(x.said) > 0 && len(f.Lines) == 0 {
			f.Lines = x.said
		}
	}
	if kind == environmentFailed {
		f.ExitCode, f.Remedy = 69, "%tfcluster reserve with another --venv"
	}
	if kind == "timeout" {
		f.Summary = fmt.Sprintf("not reserved within %s: %s", l.within(), why)
		f.Remedy = "ask for fewer or smaller executors, or give --reserve-timeout more time"
	}
	l.do(ReservationFailed{f})
	l.farewell("not reserved")
	l.do(Release{"not reserved: " + why})
}

package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// ExecutorState is the state of an executor.
type ExecutorState int

// States of an executor, in order.
const (
	ExecutorPending ExecutorState = iota // requested
	ExecutorGranted                      // allocated by the engine; its agent has not connected
	ExecutorJoined                       // its agent is connected, Python is warming up
	ExecutorReady                        // a program can start
	// The agent's stream broke; it may reconnect. Without messages on an open stream, agent.silent counts.
	ExecutorSilent
	ExecutorLost // gone
)

func (s ExecutorState) String() string {
	return [...]string{"pending", "granted", "joined", "ready", "silent", "lost"}[s]
}

// Executor is one executor of the allocation and the task assigned to it.
type Executor struct {
	ID        cluster.ExecutorID
	Task      cluster.TaskID
	State     ExecutorState
	Attempt   int
	Host      string
	Why       string // what it waits for, or why it was lost
	recovered bool   // granted to an earlier driver; its agent will reconnect
	replaced  int    // replacements since the last reset
	loss      executorLoss
	lastLines []string // last lines of the last lost agent, if the engine knows them
	agent     executorAgent

	// State of the active run:
	Port  int32
	Busy  bool // it holds, or may hold, a process of a run
	inRun executorRun
}

// executorAgent is the agent of an executor.
type executorAgent struct {
	incarnation string
	address     string
	sudden      bool          // it sent a message just before its connection broke
	silent      time.Duration // since its last message, if that is longer than usual; 0: not
	probed      bool          // it has not answered the last Probe
}

// executorLoss is the last loss of an executor.
type executorLoss struct {
	by cluster.LostBy
	on string // " on HOST", or "" if it had no host
	// memory is how often it was lost by memory before its task entered a program, since one did.
	memory   int
	final    bool // another executor in its place would end in the same way
	hostDown bool // no agent on its host answers
}

// enoughMemoryLosses is how many executors of a role may be lost by memory before its task has entered a program: all
// have the same limit and do the same until then, so that a further one would end in the same way.
const enoughMemoryLosses = 2

// executorRun is the state of an executor in the active run.
type executorRun struct {
	unknown   int  // the attempt of a task that the agent reconnected without; 0: none
	endMissed bool // the instruction to end its task, with this grace, is still to be sent: the agent was silent
	grace     time.Duration
	skipped   bool // the attempt continues without it: it is a sidecar's and did not reconnect
}

// Expects reports whether an agent may join: it must not have been replaced, and the cluster
// must not be being released.
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
	if !again && (x.Busy || l.awaitsLaunch(x)) {
		// Another agent process has joined: the old one's task is gone.
		l.taskGone(x, "its agent was started anew, and its process is gone")
	}
	x.Attempt, x.Host = e.Attempt, e.Host
	x.agent = executorAgent{incarnation: e.Incarnation, address: e.Address, probed: again && x.agent.probed}
	l.setState(x, ExecutorJoined)
	x.Why, x.lastLines = "Python is warming up", nil
	if e.Warm {
		l.setState(x, ExecutorReady)
		x.Why = ""
	}
	l.rejoined(x, e.Tasks)
	l.launchDue()
	l.becomeReady()
}

// recovered returns how many executors of an earlier driver have reconnected or will.
func (l *Machine) recovered() int {
	n := 0
	for _, x := range l.execs {
		if x.recovered || x.State == ExecutorJoined || x.State == ExecutorReady || x.State == ExecutorSilent {
			n++
		}
	}
	return n
}

// reallocated returns an executor to the pending state with a new attempt number. Its agent is
// released with the reason.
func (l *Machine) reallocated(x *Executor, attempt int, reason, awaited string) {
	if x == nil || attempt <= x.Attempt || l.state >= Releasing {
		return
	}
	if x.State == ExecutorJoined || x.State == ExecutorReady || x.State == ExecutorSilent {
		l.do(SendInstruction{x.ID, ReleaseInstruction(reason)}, SetTimer{"silent " + string(x.ID), 0})
	}
	x.Attempt, x.agent.incarnation, x.Host = attempt, "", ""
	l.setState(x, ExecutorPending)
	x.Why = awaited
}

// backedOff returns all executors of a partly filled reservation to the pending state. The
// reservation timeout keeps running.
func (l *Machine) backedOff(e cluster.BackedOff) {
	if l.state >= Releasing {
		return
	}
	for _, x := range l.execs {
		if attempt, ok := e.Attempts[x.ID]; ok {
			l.reallocated(x, attempt, "its executor was returned to the engine", "returned to the engine for now")
		}
	}
	l.note(false, "%s", e.Why)
}

// becomeReady completes the reservation once no executor is missing, and lets a start that
// waits for a replaced executor continue.
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

// lose marks an executor as lost and requests a replacement. After MaxReplacements it gives the
// executor up; only a reset requests it again.
func (l *Machine) lose(x *Executor, by cluster.LostBy, cause string) {
	l.loseWith(x, by, cause, "executor lost: "+cause)
}

// loseWith does what lose does; reason is the one of the executor's task.
func (l *Machine) loseWith(x *Executor, by cluster.LostBy, cause, reason string) {
	if x.State == ExecutorLost {
		return
	}
	wasHere := x.State == ExecutorReady || x.State == ExecutorJoined || x.State == ExecutorSilent
	x.loss = executorLoss{by: by, memory: x.loss.memory, hostDown: by == cluster.LostByHost && l.hostLost(x)}
	if by == cluster.LostByMemory && !(x.Busy && l.run != nil && l.run.task(x.Task).entered) {
		x.loss.memory++
	}
	if wasHere || x.State == ExecutorGranted {
		x.loss.on = " on " + x.Host
	}
	l.setState(x, ExecutorLost)
	x.Why, x.agent.incarnation, x.agent.silent, x.agent.probed = cause, "", 0, false
	l.do(SetTimer{"silent " + string(x.ID), 0})
	if l.state >= Releasing {
		l.setBusy(x, false)
		return
	}
	l.taskGone(x, reason)
	// Ports are allocated again once all executors are ready.
	if l.run != nil && l.run.State == RunPreparing && !x.inRun.skipped {
		l.run.State = RunWaiting
	}
	if x.State != ExecutorLost { // the restart of the run has requested another already: see regain
		return
	}
	x.loss.final = l.lacksMemory(x)
	if x.givenUp() {
		if f := l.givenUpFailure(x); l.state != Reserving { // the reservation fails with this text
			l.note(true, "%s; %s", f.GetSummary(), f.GetRemedy())
		}
		l.giveUp(x)
		return
	}
	if wasHere {
		l.note(true, "executor %s (%s on %s) was lost: %s; requesting another", x.ID, x.Task, x.Host, cause)
	}
	l.replace(x)
}

// lacksMemory reports whether an executor, and others of its role, do not get as far as a program with the memory that
// they have.
func (l *Machine) lacksMemory(x *Executor) bool {
	losses := 0
	for _, other := range l.execs {
		if other.Task.Role == x.Task.Role {
			losses += other.loss.memory
		}
	}
	return x.loss.by == cluster.LostByMemory && losses >= enoughMemoryLosses
}

// MaxReplacements limits how often one executor is replaced between two runs or resets.
const MaxReplacements = 3

// givenUp reports whether an executor is lost and no replacement is requested.
func (x *Executor) givenUp() bool {
	return x.State == ExecutorLost && (x.replaced >= MaxReplacements || x.loss.final)
}

// giveUp ends whatever waits for an executor that is given up.
func (l *Machine) giveUp(x *Executor) {
	switch {
	case l.state == Reserving:
		f := l.givenUpFailure(x)
		l.reserveFailed("engine", f.GetSummary(), f.GetRemedy())
	case l.next != nil:
		l.startFailed(l.givenUpFailure(x))
	case l.run == nil || !l.run.awaitsExecutors():
	case l.policy(x.Task.Role).kind == cluster.Sidecar:
		l.skip(x)
		l.advance()
	default:
		l.closeRun("failed", l.givenUpFailure(x), 0)
	}
}

// awaitsExecutors reports whether the next attempt begins as soon as every executor is ready.
func (r *Run) awaitsExecutors() bool { return r.State == RunRestarting || r.State == RunWaiting }

// skip lets the next attempt begin without a sidecar's executor. Its peers get its old address,
// where nobody answers, as they would if it failed later.
func (l *Machine) skip(x *Executor) {
	if !x.inRun.skipped {
		l.setSkipped(x, true)
		l.note(true, "training continues without %s: executor %s %s", x.Task, x.ID, x.absence())
	}
}

func (x *Executor) absence() string {
	if x.givenUp() {
		return x.losses()
	}
	return "is not ready: " + x.Why
}

// regain requests given-up executors that a restart needs, and skips those of sidecars.
func (l *Machine) regain() {
	for _, x := range l.execs {
		switch {
		case !x.givenUp():
		case l.policy(x.Task.Role).kind == cluster.Sidecar:
			l.skip(x)
		default:
			l.note(true, "executor %s for %s %s; the restart needs it: requesting another", x.ID, x.Task, x.losses())
			x.replaced, x.loss.memory = 0, 0
			l.replace(x)
		}
	}
}

// skipSidecars lets an attempt begin that waits only for executors of sidecars. It returns
// false if another executor is missing.
func (l *Machine) skipSidecars() bool {
	var late []*Executor
	for _, x := range l.execs {
		switch {
		case x.Busy:
			return false
		case x.State == ExecutorReady || x.inRun.skipped:
		case l.policy(x.Task.Role).kind != cluster.Sidecar:
			return false
		default:
			late = append(late, x)
		}
	}
	for _, x := range late {
		l.skip(x)
	}
	return len(late) > 0
}

func (l *Machine) replace(x *Executor) {
	x.replaced++
	x.Attempt++
	elsewhere := x.State == ExecutorLost && x.loss.hostDown
	l.setBusy(x, false)
	l.setState(x, ExecutorPending)
	x.agent.incarnation = ""
	l.do(ReplaceExecutor{x.ID, elsewhere})
}

// Missing returns one line that names the missing executors and why each is missing.
func (l *Machine) Missing() string {
	there, who := l.absent(func(x *Executor) bool { return x.State != ExecutorReady })
	line := fmt.Sprintf("%d of %d executors are ready", there, len(l.execs))
	if l.takingOver {
		line += "; the engine has not reported which of them it keeps"
	}
	if who != "" {
		line += "; missing " + who
	}
	return line
}

// RunAwaits returns what a run that starts or restarts waits for, in one line; "" where it waits
// for no executor and no files.
func (l *Machine) RunAwaits() string {
	if l.next == nil && (l.run == nil || !l.run.awaitsExecutors()) {
		return ""
	}
	_, who := l.absent(func(x *Executor) bool { return !x.inRun.skipped && (x.State != ExecutorReady || x.Busy) })
	if r := l.run; who == "" && r != nil && r.asked > r.settled {
		return "the last files of the tasks that ended"
	}
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
		if x.Host != "" && !strings.HasPrefix(why, "on "+x.Host+": ") { // an agent's own words may name it
			s += " on " + x.Host
		}
		if x.State == ExecutorReady {
			why = "its last task is being ended"
		}
		if why != "" { // an agent was just asked for
			s += ": " + why
		}
		who = append(who, s)
	}
	const most = 5
	if len(who) > most {
		who = append(who[:most], fmt.Sprintf("and %d more", len(who)-most))
	}
	return there, strings.Join(who, "; ")
}

// environmentFailed is the kind of a failure that no executor causes: the requested environment
// cannot run there.
const environmentFailed = "environment"

func (l *Machine) reserveFailed(kind, why, remedy string) {
	l.state = Failed
	l.do(SetTimer{"reserve", 0})
	f := &clusterpb.Failure{Kind: kind, Summary: why, ExitCode: 75, Remedy: remedy}
	for _, x := range l.execs {
		if x.State != ExecutorReady && len(f.Lines) == 0 {
			f.Lines = x.quoted()
		}
	}
	if kind == environmentFailed {
		f.ExitCode = 69
	}
	if kind == "timeout" {
		f.Summary = fmt.Sprintf("not reserved within %s: %s", l.reserveTimeout(), why)
	}
	l.do(ReservationFailed{f})
	l.releaseAgents("not reserved")
	l.do(Release{"not reserved: " + why})
}

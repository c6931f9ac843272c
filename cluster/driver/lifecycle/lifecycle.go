// Package lifecycle decides what happens next to a cluster and to its runs. A Machine takes one
// event at a time and returns the actions that the coordinator must perform, in order. It does
// no I/O and reads no clock, so each test case is a transcript in testdata.
//
//	lifecycle.go  the cluster: reservation, clients, reset, shutdown
//	step.go       dispatches events
//	executors.go  executors: joined, lost, replaced
//	run.go        a run: prepared, launched, entered
//	roles.go      start order of roles, and the end of a run
//	faults.go     a task's failure: root cause or secondary failure
//	silence.go    silent agents: lost hosts, and the cause of their peers' failures
//	restart.go    restarts after a lost worker or a failed task
//	stop.go       stops a run at a step that all tasks agree on
//	end.go        ends a run and its processes
package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Machine decides what happens to a cluster: it maps events to actions. It is not safe for
// concurrent use; only the coordinator's loop calls it.
type Machine struct {
	limits Limits
	state  State
	execs  []*Executor
	byID   map[cluster.ExecutorID]*Executor
	count  execCounts
	roles  map[string]Policy
	run    *Run // the active run, or the last one; nil before the first
	next   *RunSpec
	// clients counts Hold streams; the idle timer does not run while there is one.
	clients int
	idling  bool // the idle timer runs
	// takingOver is true until the engine has reported which executors of an earlier driver it
	// keeps. Agents may join before that, including agents that the engine is about to end.
	takingOver bool
	// released is the reason for the release; "" while the cluster is not being released.
	released string

	out []Action
}

// Limits are the timeouts of the lifecycle.
type Limits struct {
	Reserve time.Duration // until every executor is ready
	// Until the engine has reported which executors of an earlier driver it keeps; the engine may be
	// unreachable meanwhile.
	takeOver time.Duration
	// From the exit of a task with a secondary failure to the decision about its root cause, which also waits for
	// answers to a probe.
	settle    time.Duration
	quiet     time.Duration // from an agent's last message until it explains the failure of a peer
	Heartbeat time.Duration // from an agent's last message to a lost executor
	Sudden    time.Duration // from a broken stream to a lost executor, for an agent that sent a message just before
	comeBack  time.Duration // from a takeover until executors whose agents have not reconnected are lost
	enter     time.Duration // from start until every task has entered main_fun
	Idle      time.Duration // 0: no limit
	failGrace time.Duration // from SIGTERM to SIGKILL for tasks whose peer failed
	evaluator time.Duration // from the end of training to the end of the evaluator
	ending    time.Duration // after the grace period, until an agent that does not answer is replaced
	askStep   time.Duration // how long tasks may take to report their step; the stop then continues without the others
	lead      time.Duration // how far ahead of the furthest task the agreed step is, at the current speed
	straggle  time.Duration // from the first exit at the agreed step to SIGTERM for tasks that have not exited there
	noReply   time.Duration // from the first exit of a stopping run to SIGKILL for tasks that the request has not reached
	stacks    time.Duration // from requesting the stacks of tasks to the end of the run
	report    time.Duration // how long an agent that reconnected without its task may take to report the exit
}

// DefaultLimits returns the limits of a cluster that is reserved without options.
func DefaultLimits() Limits {
	return Limits{
		Reserve: 10 * time.Minute, takeOver: 6 * time.Minute, settle: 500 * time.Millisecond,
		quiet: 3 * time.Second, Heartbeat: cluster.HeartbeatTimeout, Sudden: 700 * time.Millisecond,
		comeBack: 10 * time.Second, enter: 10 * time.Minute, Idle: 30 * time.Minute, failGrace: 500 * time.Millisecond,
		evaluator: 2 * time.Minute, ending: 10 * time.Second, askStep: 500 * time.Millisecond, lead: 100 * time.Millisecond,
		straggle: time.Second, noReply: 3 * time.Second, stacks: 2 * time.Second, report: 10 * time.Second,
	}
}

// State is the state of a cluster.
type State int

// States of a cluster, in order; Failed and Releasing are final.
const (
	Reserving State = iota
	Ready
	Releasing
	Failed // the reservation failed
)

func (s State) String() string {
	return [...]string{"reserving", "ready", "releasing", "failed"}[s]
}

func (l *Machine) do(a ...Action) { l.out = append(l.out, a...) }

func (l *Machine) note(warning bool, format string, args ...any) {
	l.do(Note{fmt.Sprintf(format, args...), warning})
}

// New returns the Machine of a cluster with these executors. takingOver reports that an earlier
// driver requested them from the engine.
func New(execs []cluster.ExecutorRequest, roles []*clusterpb.Role, lim Limits, takingOver bool) *Machine {
	l := &Machine{limits: lim, roles: rolePolicies(roles, lim), takingOver: takingOver}
	for _, e := range execs {
		l.execs = append(l.execs, &Executor{ID: e.ID, Task: e.Task, Why: "requested"})
	}
	l.index()
	return l
}

// Open starts the reservation timeout. It is called once, before Step.
func (l *Machine) Open() []Action {
	l.out = nil
	l.do(SetTimer{"reserve", l.reserveTimeout()})
	return l.out
}

// reserveTimeout returns how long the reservation may take. After a takeover it is at least
// limits.takeOver, so that a short outage of the engine does not fail the cluster.
func (l *Machine) reserveTimeout() time.Duration {
	if l.takingOver {
		return max(l.limits.Reserve, l.limits.takeOver)
	}
	return l.limits.Reserve
}

func (l *Machine) timer(name string) {
	switch {
	case name == "reserve":
		if l.state == Reserving {
			l.reserveFailed("timeout", l.Missing(), "request fewer or smaller executors, or raise --reserve-timeout")
		}
	case name == "return":
		for _, x := range l.execs {
			if x.State == ExecutorGranted && x.recovered {
				l.lose(x, cluster.LostByEngine, "its agent did not connect to the new driver")
			}
		}
	case name == "idle":
		if l.clients == 0 && !l.Active() {
			l.shutdown("idle")
		}
	case strings.HasPrefix(name, "silent "):
		if x := l.Executor(cluster.ExecutorID(strings.TrimPrefix(name, "silent "))); x != nil && x.State == ExecutorSilent {
			l.lose(x, cluster.LostByEngine, "its agent ended without a report: it was killed, or its host is down")
		}
	case strings.HasPrefix(name, "unknown "):
		l.unknown(l.Executor(cluster.ExecutorID(strings.TrimPrefix(name, "unknown "))))
	default:
		l.runTimer(name)
	}
}

// reset ends the run's processes on every executor and replaces lost executors; hard replaces
// all.
func (l *Machine) reset(hard bool) {
	if l.state != Ready && l.state != Reserving {
		return
	}
	if l.Active() {
		l.closeRun("stopped", &clusterpb.Failure{Kind: "canceled", Summary: "ended by reset"}, 0)
	}
	l.cancelStart("reset")
	for _, x := range l.execs {
		x.replaced, x.loss.memory = 0, 0
		switch {
		case x.State == ExecutorLost, hard, x.State == ExecutorSilent:
			if x.State == ExecutorReady || x.State == ExecutorJoined {
				l.do(SendInstruction{x.ID, ReleaseInstruction("reset --hard")})
			}
			l.taskGone(x, "reset")
			l.replace(x)
		case x.State == ExecutorReady || x.State == ExecutorJoined:
			l.do(SendInstruction{x.ID, endRun(0, 0)})
		}
	}
}

// renew requests again the executors of a ready cluster that were given up.
func (l *Machine) renew() {
	for _, x := range l.execs {
		if l.state == Ready && x.State == ExecutorLost {
			x.replaced, x.loss.memory = 0, 0
			l.replace(x)
		}
	}
}

func (l *Machine) shutdown(reason string) {
	if l.state == Releasing {
		return
	}
	if l.Active() {
		l.closeRun("stopped", &clusterpb.Failure{Kind: "canceled", Summary: "the cluster was released: " + reason}, 0)
	}
	l.cancelStart("the cluster's release (" + reason + ")")
	l.state, l.released = Releasing, reason
	l.releaseAgents(reason)
	l.do(Release{reason})
}

// releaseAgents makes every connected agent end its tasks and exit.
func (l *Machine) releaseAgents(reason string) {
	for _, x := range l.execs {
		if x.State == ExecutorReady || x.State == ExecutorJoined || x.State == ExecutorSilent {
			l.do(SendInstruction{x.ID, ReleaseInstruction(reason)})
		}
	}
}

// engineEnded releases a cluster whose allocation the engine has ended; an active run fails.
func (l *Machine) engineEnded(cause string) {
	if l.state >= Releasing {
		return
	}
	f := &clusterpb.Failure{
		Kind: "lost", Summary: "the cluster ended: " + cause, ExitCode: 137,
		Remedy: "%tfcluster reserve makes another cluster",
	}
	if l.Active() {
		l.closeRun("failed", f, 0)
	}
	if l.next != nil {
		l.startFailed(f)
	}
	if l.state == Reserving {
		l.reserveFailed("engine", cause, ReserveRemedy(cause))
		return
	}
	l.note(true, "the cluster ended: %s", cause)
	l.shutdown(cause)
}

// cancelStart fails a start that waits for executors.
func (l *Machine) cancelStart(by string) {
	if l.next != nil {
		l.startFailed(
			&clusterpb.Failure{Kind: "canceled", Summary: "the start was ended by " + by + " before it began", ExitCode: 1})
	}
}

// Active reports whether there is a run whose outcome is open.
func (l *Machine) Active() bool { return l.run != nil && l.run.State.Open() }

// Busy reports whether a run is active or a start waits for executors.
func (l *Machine) Busy() bool { return l.Active() || l.next != nil }

// idle starts the idle timer when no client is connected and nothing runs, and stops it
// otherwise.
func (l *Machine) idle() {
	if l.limits.Idle == 0 {
		return
	}
	counting := l.state == Ready && l.clients == 0 && !l.Busy()
	if counting == l.idling {
		return
	}
	l.idling = counting
	if counting {
		l.do(SetTimer{"idle", l.limits.Idle})
	} else {
		l.do(SetTimer{"idle", 0})
	}
}

// Tasks returns the tasks of all executors, in display order.
func (l *Machine) Tasks() []cluster.TaskID {
	var ts []cluster.TaskID
	for _, x := range l.execs {
		ts = append(ts, x.Task)
	}
	slices.SortFunc(ts, cluster.CompareTasks)
	return ts
}

// ReleaseInstruction makes an agent end its tasks and exit.
func ReleaseInstruction(reason string) *clusterpb.Instruction {
	return &clusterpb.Instruction{Instruction: &clusterpb.Instruction_Release{Release: &clusterpb.Release{Reason: reason}}}
}

func endRun(run int32, grace time.Duration) *clusterpb.Instruction {
	return &clusterpb.Instruction{
		Instruction: &clusterpb.Instruction_EndRun{EndRun: &clusterpb.EndRun{Run: run, GraceMillis: grace.Milliseconds()}},
	}
}

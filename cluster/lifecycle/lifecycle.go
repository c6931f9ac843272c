// Package lifecycle decides what happens next to a cluster and to its runs. A Machine takes
// one event at a time and returns the actions that the coordinator is to take, in order. It
// does no I/O and reads no clock, so each case is a transcript in testdata.
//
//	lifecycle.go  the cluster: reservation, clients, reset, shutdown
//	step.go       which event is whose
//	executors.go  executors: joined, lost, replaced
//	run.go        a run: prepared, launched, entered
//	roles.go      which tasks wait for which, and when a run is over
//	faults.go     a task's end: cause or secondary failure
//	restart.go    a lost worker or a failed task becomes a restart, or the end of the run
//	stop.go       a stop at a step that all tasks agree on
//	end.go        the end of a run and of its processes
package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Machine decides what happens to a cluster: events in, actions out. It does no
// I/O and reads no clock, so that every case is a transcript in testdata. Its one
// caller is the coordinator's loop.
type Machine struct {
	limits Limits
	state  State
	execs  []*Executor
	byID   map[cluster.ExecutorID]*Executor
	count  execCounts
	roles  map[string]Policy
	run    *Run // the active or the last one; nil before the first
	next   *RunSpec
	// clients counts Hold streams; the idle clock stands still while there is one.
	clients int
	idling  bool // the idle clock runs
	// takingOver is whether the engine has yet to say which executors of an earlier driver
	// it keeps. Agents join meanwhile, also such as are about to be ended.
	takingOver bool
	// released is why the cluster is being given back.
	released string

	out []Action
}

// Limits are the waits the lifecycle asks for; every one has words of its own.
type Limits struct {
	Reserve   time.Duration // until every executor is ready
	takeOver  time.Duration // until an engine has said what it keeps of an earlier driver's; it may be away
	settle    time.Duration // from an echo's exit to the verdict
	Heartbeat time.Duration // from a lost stream to a lost executor
	Sudden    time.Duration // the same when it spoke a moment before
	enter     time.Duration // from start to every main_fun entered
	Idle      time.Duration // 0: never
	failGrace time.Duration // SIGTERM to SIGKILL of those whose peer failed
	evaluator time.Duration // from the end of training to the evaluator's
	ending    time.Duration // past the grace, until an agent that does not answer is replaced
	askStep   time.Duration // from asking tasks for their step to going on without those that do not answer
	lead      time.Duration // from naming a step to that step's end, if steps go on as they did
	straggle  time.Duration // from the first exit at the agreed step to SIGTERM for those that have not left there
	noReply   time.Duration // from the first exit of a run that is stopped to the end of those that the request has not reached
	stacks    time.Duration // from asking tasks where they are to the run's end
	report    time.Duration // from an agent's return to a task that it no longer knows
}

// DefaultLimits returns the limits of a cluster that was reserved without options.
func DefaultLimits() Limits {
	return Limits{
		Reserve: 10 * time.Minute, takeOver: 6 * time.Minute, settle: 500 * time.Millisecond, Heartbeat: 10 * time.Second, Sudden: 700 * time.Millisecond, enter: 10 * time.Minute,
		Idle: 30 * time.Minute, failGrace: 500 * time.Millisecond, evaluator: 2 * time.Minute, ending: 10 * time.Second,
		askStep: 500 * time.Millisecond, lead: 100 * time.Millisecond, straggle: time.Second, noReply: 3 * time.Second,
		stacks: time.Second, report: 10 * time.Second,
	}
}

// State is how far a cluster is.
type State int

// A cluster's states follow one another in this order; failed and released are ends.
const (
	Reserving State = iota
	Ready
	Releasing
	Failed // the reservation did not come about
)

func (s State) String() string {
	return [...]string{"reserving", "ready", "releasing", "failed"}[s]
}

func (l *Machine) do(a ...Action) { l.out = append(l.out, a...) }

func (l *Machine) note(warning bool, format string, args ...any) {
	l.do(Note{fmt.Sprintf(format, args...), warning})
}

// New makes the lifecycle of a cluster with these executors. takingOver is whether an
// earlier driver has asked the engine for them.
func New(execs []cluster.ExecutorRequest, roles []*clusterpb.Role, lim Limits, takingOver bool) *Machine {
	l := &Machine{limits: lim, roles: rolePolicies(roles, lim), takingOver: takingOver}
	for _, e := range execs {
		l.execs = append(l.execs, &Executor{ID: e.ID, Task: e.Task, Why: "asked for"})
	}
	l.index()
	return l
}

// Open is the first call: the clock of the reservation starts.
func (l *Machine) Open() []Action {
	l.out = nil
	l.do(SetTimer{"reserve", l.within()})
	return l.out
}

// within is how long the reservation may take. What an earlier driver reserved is not
// given up because its engine is away for a while.
func (l *Machine) within() time.Duration {
	if l.takingOver {
		return max(l.limits.Reserve, l.limits.takeOver)
	}
	return l.limits.Reserve
}

func (l *Machine) timer(name string) {
	switch {
	case name == "reserve":
		if l.state == Reserving {
			l.reserveFailed("timeout", l.Missing())
		}
	case name == "return":
		for _, x := range l.execs {
			if x.State == ExecutorGranted && x.kept {
				l.lose(x, "its agent did not come back to the new driver")
			}
		}
	case name == "idle":
		if l.clients == 0 && !l.Active() {
			l.shutdown("idle")
		}
	case strings.HasPrefix(name, "silent "):
		if x := l.Executor(cluster.ExecutorID(strings.TrimPrefix(name, "silent "))); x != nil && x.State == ExecutorSilent {
			cause := fmt.Sprintf("no heartbeat for %s", l.limits.Heartbeat)
			if x.agent.sudden {
				cause = "its agent ended without a word: killed, or its host is gone"
			}
			l.lose(x, cause)
		}
	case strings.HasPrefix(name, "unknown "):
		l.unknown(l.Executor(cluster.ExecutorID(strings.TrimPrefix(name, "unknown "))))
	default:
		l.runTimer(name)
	}
}

// reset frees everything a run may have left and replaces what was lost.
func (l *Machine) reset(hard bool) {
	if l.state != Ready && l.state != Reserving {
		return
	}
	if l.Active() {
		l.outcome("stopped", &clusterpb.Failure{Kind: "canceled", Summary: "ended by reset"}, 0)
	}
	l.cancelStart("reset")
	for _, x := range l.execs {
		x.replaced = 0
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

// renew asks again for the executors of a ready cluster that were given up.
func (l *Machine) renew() {
	for _, x := range l.execs {
		if l.state == Ready && x.State == ExecutorLost {
			x.replaced = 0
			l.replace(x)
		}
	}
}

func (l *Machine) shutdown(reason string) {
	if l.state == Releasing {
		return
	}
	if l.Active() {
		l.outcome("stopped", &clusterpb.Failure{Kind: "canceled", Summary: "ended by the cluster's shutdown: " + reason}, 0)
	}
	l.cancelStart("the cluster's shutdown: " + reason)
	l.state, l.released = Releasing, reason
	l.farewell(reason)
	l.do(Release{reason})
}

// farewell lets every agent that is here end what it holds, and itself.
func (l *Machine) farewell(reason string) {
	for _, x := range l.execs {
		if x.State == ExecutorReady || x.State == ExecutorJoined || x.State == ExecutorSilent {
			l.do(SendInstruction{x.ID, ReleaseInstruction(reason)})
		}
	}
}

// over ends a cluster that the engine has ended: a run fails of it.
func (l *Machine) over(cause string) {
	if l.state >= Releasing {
		return
	}
	f := &clusterpb.Failure{Kind: "lost", Summary: "the cluster ended: " + cause, ExitCode: 1, Remedy: "%tfcluster reserve makes another"}
	if l.Active() {
		l.outcome("failed", f, 0)
	}
	if l.next != nil {
		l.startFailed(f)
	}
	if l.state == Reserving {
		l.reserveFailed("engine", cause)
		return
	}
	l.note(true, "the cluster ended: %s", cause)
	l.shutdown(cause)
}

// cancelStart ends a start that waits for executors.
func (l *Machine) cancelStart(by string) {
	if l.next != nil {
		l.startFailed(&clusterpb.Failure{Kind: "canceled", Summary: "ended before it began by " + by, ExitCode: 1})
	}
}

// Active is whether a run is on whose outcome is open.
func (l *Machine) Active() bool { return l.run != nil && l.run.State.Open() }

// Busy is whether a run is on, or a start waits for executors.
func (l *Machine) Busy() bool { return l.Active() || l.next != nil }

// idle starts the clock when nobody looks and nothing runs, and stops it otherwise.
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

// Tasks returns the tasks of all executors, in the order in which people list them.
func (l *Machine) Tasks() []cluster.TaskID {
	var ts []cluster.TaskID
	for _, x := range l.execs {
		ts = append(ts, x.Task)
	}
	slices.SortFunc(ts, cluster.CompareTasks)
	return ts
}

// ReleaseInstruction tells an agent to end its tasks and itself.
func ReleaseInstruction(reason string) *clusterpb.Instruction {
	return &clusterpb.Instruction{Instruction: &clusterpb.Instruction_Release{Release: &clusterpb.Release{Reason: reason}}}
}

func endRun(run int32, grace time.Duration) *clusterpb.Instruction {
	return &clusterpb.Instruction{Instruction: &clusterpb.Instruction_EndRun{EndRun: &clusterpb.EndRun{Run: run, GraceMillis: grace.Milliseconds()}}}
}

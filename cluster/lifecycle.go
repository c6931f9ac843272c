package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// lifecycle decides what happens to a cluster: events in, actions out. It does no
// I/O and reads no clock, so that every case is a transcript in testdata. Its one
// caller is the coordinator's loop.
type lifecycle struct {
	limits limits
	state  clusterState
	execs  []*executor
	byID   map[ExecutorID]*executor
	count  execCounts
	roles  map[string]rolePolicy
	run    *run // the active or the last one; nil before the first
	next   *runSpec
	// clients counts Hold streams; the idle clock stands still while there is one.
	clients int
	idling  bool // the idle clock runs
	// takingOver is whether the engine has yet to say which executors of an earlier driver
	// it keeps. Agents join meanwhile, also such as are about to be ended.
	takingOver bool
	// released is why the cluster is being given back.
	released string

	out []action
}

// limits are the waits the lifecycle asks for; every one has words of its own.
type limits struct {
	reserve   time.Duration // until every executor is ready
	takeOver  time.Duration // until an engine has said what it keeps of an earlier driver's; it may be away
	settle    time.Duration // from an echo's exit to the verdict
	heartbeat time.Duration // from a lost stream to a lost executor
	sudden    time.Duration // the same when it spoke a moment before
	enter     time.Duration // from start to every main_fun entered
	idle      time.Duration // 0: never
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

func defaultLimits() limits {
	return limits{
		reserve: 10 * time.Minute, takeOver: 6 * time.Minute, settle: 500 * time.Millisecond, heartbeat: 10 * time.Second, sudden: 700 * time.Millisecond, enter: 10 * time.Minute,
		idle: 30 * time.Minute, failGrace: 500 * time.Millisecond, evaluator: 2 * time.Minute, ending: 10 * time.Second,
		askStep: 500 * time.Millisecond, lead: 100 * time.Millisecond, straggle: time.Second, noReply: 3 * time.Second,
		stacks: time.Second, report: 10 * time.Second,
	}
}

type clusterState int

// A cluster's states follow one another in this order; failed and released are ends.
const (
	stateReserving clusterState = iota
	stateReady
	stateReleasing
	stateFailed // the reservation did not come about
)

func (s clusterState) String() string {
	return [...]string{"reserving", "ready", "releasing", "failed"}[s]
}

func (l *lifecycle) do(a ...action) { l.out = append(l.out, a...) }

func (l *lifecycle) note(warning bool, format string, args ...any) {
	l.do(actNote{fmt.Sprintf(format, args...), warning})
}

func newLifecycle(execs []ExecutorRequest, roles []*clusterpb.Role, lim limits) *lifecycle {
	l := &lifecycle{limits: lim, roles: rolePolicies(roles, lim)}
	for _, e := range execs {
		l.execs = append(l.execs, &executor{id: e.ID, task: e.Task, why: "asked for"})
	}
	l.index()
	return l
}

// open is the first call: the clock of the reservation starts.
func (l *lifecycle) open() []action {
	l.out = nil
	l.do(actTimer{"reserve", l.within()})
	return l.out
}

// within is how long the reservation may take. What an earlier driver reserved is not
// given up because its engine is away for a while.
func (l *lifecycle) within() time.Duration {
	if l.takingOver {
		return max(l.limits.reserve, l.limits.takeOver)
	}
	return l.limits.reserve
}

// step takes one event and returns what is to be done about it, in order.
func (l *lifecycle) step(e event) []action {
	l.out = nil
	switch e := e.(type) {
	case evPending:
		if x := l.exec(e.exec); x != nil && (x.state == execPending || x.state == execGranted) {
			x.why = e.why
		}
	case evAnew:
		l.anew(l.exec(e.exec), e.attempt, "the engine has ended its executor", "asked for")
	case evReturned:
		l.returned(e)
	case evGranted:
		if x := l.exec(e.exec); x != nil && e.attempt >= x.attempt && (x.state == execPending || x.state == execLost) {
			l.setState(x, execGranted)
			x.attempt, x.host, x.why = e.attempt, e.host, "its agent has not called yet"
			x.kept = e.kept
		}
	case evSaid:
		if x := l.exec(e.exec); x != nil && e.attempt >= x.attempt {
			x.said = e.lines
		}
	case evLost:
		if x := l.exec(e.exec); x != nil && e.attempt >= x.attempt {
			l.lose(x, e.cause)
		}
	case evJoined:
		l.joined(e)
	case evWarmed:
		if x := l.exec(e.exec); x != nil && x.state == execJoined {
			l.setState(x, execReady)
			x.warm, x.why = true, ""
			l.launchDue()
			l.becomeReady()
		}
	case evUnfit:
		if l.state == stateReserving {
			l.reserveFailed(environmentFailed, e.cause)
		}
	case evFetching:
		if x := l.exec(e.exec); x != nil && x.state == execJoined {
			x.why = e.what
		}
	case evDisconnected:
		if x := l.exec(e.exec); x != nil && x.incarnation == e.incarnation && (x.state == execJoined || x.state == execReady) {
			l.setState(x, execSilent)
			x.why, x.sudden = "its connection broke", e.sudden
			wait := l.limits.heartbeat
			if e.sudden {
				wait = min(wait, l.limits.sudden)
			}
			l.do(actTimer{"silent " + string(x.id), wait})
		}
	case evRecovered:
		longer := l.within() > l.limits.reserve
		l.takingOver = false
		l.do(actTimer{"return", l.limits.heartbeat})
		if longer && l.state == stateReserving {
			l.do(actTimer{"reserve", l.within()})
		}
		l.becomeReady()
	case evTimer:
		l.timer(e.name)
	case evClients:
		l.clients = e.n
	case evOver:
		l.over(e.cause)
	case evReset:
		l.reset(e.hard)
	case evRenew:
		l.renew()
	case evShutdown:
		l.shutdown(e.reason)
	default:
		l.stepRun(e)
	}
	l.idle()
	return l.out
}

func (l *lifecycle) timer(name string) {
	switch {
	case name == "reserve":
		if l.state == stateReserving {
			l.reserveFailed("timeout", l.missing())
		}
	case name == "return":
		for _, x := range l.execs {
			if x.state == execGranted && x.kept {
				l.lose(x, "its agent did not come back to the new driver")
			}
		}
	case name == "idle":
		if l.clients == 0 && !l.active() {
			l.shutdown("idle")
		}
	case strings.HasPrefix(name, "silent "):
		if x := l.exec(ExecutorID(strings.TrimPrefix(name, "silent "))); x != nil && x.state == execSilent {
			cause := fmt.Sprintf("no heartbeat for %s", l.limits.heartbeat)
			if x.sudden {
				cause = "its agent ended without a word: killed, or its host is gone"
			}
			l.lose(x, cause)
		}
	case strings.HasPrefix(name, "unknown "):
		l.unknown(l.exec(ExecutorID(strings.TrimPrefix(name, "unknown "))))
	default:
		l.runTimer(name)
	}
}

// reset frees everything a run may have left and replaces what was lost.
func (l *lifecycle) reset(hard bool) {
	if l.state != stateReady && l.state != stateReserving {
		return
	}
	if l.active() {
		l.outcome("stopped", &clusterpb.Failure{Kind: "canceled", Summary: "ended by reset"}, 0)
	}
	l.cancelStart("reset")
	for _, x := range l.execs {
		x.replaced = 0
		switch {
		case x.state == execLost, hard, x.state == execSilent:
			if x.state == execReady || x.state == execJoined {
				l.do(actSend{x.id, release("reset --hard")})
			}
			l.taskGone(x, "reset")
			l.replace(x)
		case x.state == execReady || x.state == execJoined:
			l.do(actSend{x.id, endRun(0, 0)})
		}
	}
}

// renew asks again for the executors of a ready cluster that were given up.
func (l *lifecycle) renew() {
	for _, x := range l.execs {
		if l.state == stateReady && x.state == execLost {
			x.replaced = 0
			l.replace(x)
		}
	}
}

func (l *lifecycle) shutdown(reason string) {
	if l.state == stateReleasing {
		return
	}
	if l.active() {
		l.outcome("stopped", &clusterpb.Failure{Kind: "canceled", Summary: "ended by the cluster's shutdown: " + reason}, 0)
	}
	l.cancelStart("the cluster's shutdown: " + reason)
	l.state, l.released = stateReleasing, reason
	l.farewell(reason)
	l.do(actRelease{reason})
}

// farewell lets every agent that is here end what it holds, and itself.
func (l *lifecycle) farewell(reason string) {
	for _, x := range l.execs {
		if x.state == execReady || x.state == execJoined || x.state == execSilent {
			l.do(actSend{x.id, release(reason)})
		}
	}
}

// over ends a cluster that the engine has ended: a run fails of it.
func (l *lifecycle) over(cause string) {
	if l.state >= stateReleasing {
		return
	}
	f := &clusterpb.Failure{Kind: "lost", Summary: "the cluster ended: " + cause, ExitCode: 1, Remedy: "%tfcluster reserve makes another"}
	if l.active() {
		l.outcome("failed", f, 0)
	}
	if l.next != nil {
		l.startFailed(f)
	}
	if l.state == stateReserving {
		l.reserveFailed("engine", cause)
		return
	}
	l.note(true, "the cluster ended: %s", cause)
	l.shutdown(cause)
}

// cancelStart ends a start that waits for executors.
func (l *lifecycle) cancelStart(by string) {
	if l.next != nil {
		l.startFailed(&clusterpb.Failure{Kind: "canceled", Summary: "ended before it began by " + by, ExitCode: 1})
	}
}

// active is whether a run is on whose outcome is open.
func (l *lifecycle) active() bool { return l.run != nil && l.run.state.open() }

// busy is whether a run is on, or a start waits for executors.
func (l *lifecycle) busy() bool { return l.active() || l.next != nil }

// idle starts the clock when nobody looks and nothing runs, and stops it otherwise.
func (l *lifecycle) idle() {
	if l.limits.idle == 0 {
		return
	}
	counting := l.state == stateReady && l.clients == 0 && !l.busy()
	if counting == l.idling {
		return
	}
	l.idling = counting
	if counting {
		l.do(actTimer{"idle", l.limits.idle})
	} else {
		l.do(actTimer{"idle", 0})
	}
}

func (l *lifecycle) sortedTasks() []TaskID {
	var ts []TaskID
	for _, x := range l.execs {
		ts = append(ts, x.task)
	}
	slices.SortFunc(ts, CompareTasks)
	return ts
}

func release(reason string) *clusterpb.Instruction {
	return &clusterpb.Instruction{Instruction: &clusterpb.Instruction_Release{Release: &clusterpb.Release{Reason: reason}}}
}

func endRun(run int32, grace time.Duration) *clusterpb.Instruction {
	return &clusterpb.Instruction{Instruction: &clusterpb.Instruction_EndRun{EndRun: &clusterpb.EndRun{Run: run, GraceMillis: grace.Milliseconds()}}}
}

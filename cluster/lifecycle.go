package cluster

import (
	"fmt"
	"slices"
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
	run    *run // the active or the last one; nil before the first
	next   *runSpec
	// clients counts Hold streams; the idle clock stands still while there is one.
	clients int
	idling  bool // the idle clock runs
	// released is why the cluster is being given back.
	released string

	out []action
}

// limits are the waits the lifecycle asks for; every one has words of its own.
type limits struct {
	reserve   time.Duration // until every executor is ready
	settle    time.Duration // from an echo's exit to the verdict
	heartbeat time.Duration // from a lost stream to a lost executor
	enter     time.Duration // from start to every main_fun entered
	idle      time.Duration // 0: never
	failGrace time.Duration // SIGTERM to SIGKILL of those whose peer failed
	evaluator time.Duration // from the end of training to the evaluator's
	ending    time.Duration // past the grace, until an agent that does not answer is replaced
}

func defaultLimits() limits {
	return limits{
		reserve: 10 * time.Minute, settle: 500 * time.Millisecond, heartbeat: 10 * time.Second, enter: 10 * time.Minute,
		idle: 30 * time.Minute, failGrace: 500 * time.Millisecond, evaluator: 2 * time.Minute, ending: 10 * time.Second,
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

type execState int

const (
	execPending execState = iota // asked for
	execGranted                  // the engine gave a place, the agent is on its way
	execJoined                   // the agent is here, Python is warming
	execReady                    // a program may start
	execSilent                   // the agent's stream broke; it may come back
	execLost                     // gone
)

func (s execState) String() string {
	return [...]string{"pending", "granted", "joined", "ready", "silent", "lost"}[s]
}

// executor is one place of the allocation, with the task that lives there.
type executor struct {
	id          ExecutorID
	task        TaskID
	state       execState
	attempt     int
	incarnation string
	warm        bool
	host        string
	why         string // what is awaited, or why it was lost
	replaced    int    // replacements since the last reset

	// of the active run
	port    int32
	address string
	busy    bool // a process of a run is, or may be, alive here
}

// Events.
type (
	evPending struct {
		exec ExecutorID
		why  string
	}
	evGranted struct {
		exec    ExecutorID
		attempt int
		host    string
	}
	evLost struct { // the engine says so
		exec    ExecutorID
		attempt int
		cause   string
	}
	evJoined struct {
		exec        ExecutorID
		attempt     int
		incarnation string
		host        string
		address     string
		warm        bool
		tasks       []*clusterpb.RunningTask
	}
	evWarmed       struct{ exec ExecutorID }
	evDisconnected struct {
		exec        ExecutorID
		incarnation string
	}
	evTimer    struct{ name string }
	evClients  struct{ n int }
	evReset    struct{ hard bool }
	evShutdown struct{ reason string }
)

type (
	event  any
	action any
)

// Actions.
type (
	actReplace struct{ exec ExecutorID }
	actSend    struct {
		exec ExecutorID
		what *clusterpb.Instruction
	}
	actTimer struct { // replaces a timer of the same name; 0 cancels
		name  string
		after time.Duration
	}
	actReady         struct{}
	actReserveFailed struct{ failure *clusterpb.Failure }
	actNote          struct {
		text    string
		warning bool
	}
	actRelease struct{ reason string }
	actLaunch  struct {
		exec    ExecutorID
		task    TaskID
		attempt int
		spec    Spec
		fresh   bool // a first launch of this attempt, not a task restarted alone
	}
	actRunChanged struct{} // state or tasks: followers want to know
	actRunEntered struct{}
	actRunOver    struct{} // the outcome is decided
	actRunGone    struct{} // and no process of it is left
	// actStartFailed: the start that waited for executors does not come about.
	actStartFailed struct{ failure *clusterpb.Failure }
)

func (l *lifecycle) do(a action) { l.out = append(l.out, a) }

func (l *lifecycle) note(warning bool, format string, args ...any) {
	l.do(actNote{fmt.Sprintf(format, args...), warning})
}

func newLifecycle(execs []ExecutorRequest, lim limits) *lifecycle {
	l := &lifecycle{limits: lim}
	for _, e := range execs {
		l.execs = append(l.execs, &executor{id: e.ID, task: e.Task, why: "asked for"})
	}
	return l
}

// open is the first call: the clock of the reservation starts.
func (l *lifecycle) open() []action {
	l.out = nil
	l.do(actTimer{"reserve", l.limits.reserve})
	return l.out
}

// step takes one event and returns what is to be done about it, in order.
func (l *lifecycle) step(e event) []action {
	l.out = nil
	switch e := e.(type) {
	case evPending:
		if x := l.exec(e.exec); x != nil && (x.state == execPending || x.state == execGranted) {
			x.why = e.why
		}
	case evGranted:
		if x := l.exec(e.exec); x != nil && e.attempt >= x.attempt && (x.state == execPending || x.state == execLost) {
			x.state, x.attempt, x.host, x.why = execGranted, e.attempt, e.host, "its agent has not called yet"
		}
	case evLost:
		if x := l.exec(e.exec); x != nil && e.attempt >= x.attempt {
			l.lose(x, e.cause)
		}
	case evJoined:
		l.joined(e)
	case evWarmed:
		if x := l.exec(e.exec); x != nil && x.state == execJoined {
			x.warm = true
			x.state, x.why = execReady, ""
			l.becomeReady()
		}
	case evDisconnected:
		if x := l.exec(e.exec); x != nil && x.incarnation == e.incarnation && (x.state == execJoined || x.state == execReady) {
			x.state, x.why = execSilent, "its connection broke"
			l.do(actTimer{"silent " + string(x.id), l.limits.heartbeat})
		}
	case evTimer:
		l.timer(e.name)
	case evClients:
		l.clients = e.n
	case evReset:
		l.reset(e.hard)
	case evShutdown:
		l.shutdown(e.reason)
	default:
		l.stepRun(e)
	}
	l.idle()
	return l.out
}

func (l *lifecycle) exec(id ExecutorID) *executor {
	for _, x := range l.execs {
		if x.id == id {
			return x
		}
	}
	return nil
}

func (l *lifecycle) joined(e evJoined) {
	x := l.exec(e.exec)
	if x == nil || e.attempt < x.attempt || l.state >= stateReleasing {
		l.do(actSend{e.exec, release("this cluster does not expect it any more")})
		return
	}
	l.do(actTimer{"silent " + string(x.id), 0})
	again := x.incarnation == e.incarnation && x.incarnation != ""
	if !again && x.busy {
		// Another process speaks for the executor: what ran there is gone.
		l.taskGone(x, "its agent was replaced")
	}
	x.attempt, x.incarnation, x.host, x.address, x.warm = e.attempt, e.incarnation, e.host, e.address, e.warm
	x.state, x.why = execJoined, "Python is warming up"
	if e.warm {
		x.state, x.why = execReady, ""
	}
	l.rejoined(x, e.tasks)
	l.becomeReady()
}

// becomeReady ends the reservation once nobody is missing, and lets a start that
// waited for a replaced executor go on.
func (l *lifecycle) becomeReady() {
	for _, x := range l.execs {
		if x.state != execReady {
			return
		}
	}
	if l.state == stateReserving {
		l.state = stateReady
		l.do(actTimer{"reserve", 0})
		l.do(actReady{})
	}
	l.advance()
}

// lose takes an executor for gone and asks for another, unless it was lost again
// and again: then only a reset tries anew.
func (l *lifecycle) lose(x *executor, cause string) {
	if x.state == execLost {
		return
	}
	wasHere := x.state == execReady || x.state == execJoined || x.state == execSilent
	x.state, x.why, x.warm, x.incarnation = execLost, cause, false, ""
	l.do(actTimer{"silent " + string(x.id), 0})
	if l.state >= stateReleasing {
		x.busy = false
		return
	}
	l.taskGone(x, "executor lost: "+cause)
	if x.replaced >= maxReplacements {
		l.note(true, "executor %s (%s) was lost %d times, the last time: %s. %%tfcluster reset tries again", x.id, x.task, x.replaced+1, cause)
		if l.state == stateReserving {
			l.reserveFailed("engine", fmt.Sprintf("executor %s for %s does not stay: %s", x.id, x.task, cause))
		}
		return
	}
	if wasHere {
		l.note(true, "executor %s (%s on %s) was lost: %s; asking for another", x.id, x.task, x.host, cause)
	}
	l.replace(x)
}

// maxReplacements bounds how often one executor is replaced between two resets.
const maxReplacements = 3

func (l *lifecycle) replace(x *executor) {
	x.replaced++
	x.attempt++
	x.busy = false
	x.state, x.incarnation, x.warm = execPending, "", false
	l.do(actReplace{x.id})
}

func (l *lifecycle) timer(name string) {
	var id string
	switch {
	case name == "reserve":
		if l.state == stateReserving {
			l.reserveFailed("timeout", l.missing())
		}
	case name == "idle":
		if l.clients == 0 && !l.active() {
			l.shutdown("idle")
		}
	case len(name) > 7 && name[:7] == "silent ":
		id = name[7:]
		if x := l.exec(ExecutorID(id)); x != nil && x.state == execSilent {
			l.lose(x, fmt.Sprintf("no heartbeat for %s", l.limits.heartbeat))
		}
	default:
		l.runTimer(name)
	}
}

// missing names who has not come and why, in one line.
func (l *lifecycle) missing() string {
	ready := 0
	var who []string
	for _, x := range l.execs {
		if x.state == execReady {
			ready++
			continue
		}
		s := x.task.String()
		if x.host != "" {
			s += " on " + x.host
		}
		who = append(who, s+": "+x.why)
	}
	const most = 5
	if len(who) > most {
		who = append(who[:most], fmt.Sprintf("and %d more", len(who)-most))
	}
	line := fmt.Sprintf("%d of %d executors came", ready, len(l.execs))
	for i, w := range who {
		sep := "; missing "
		if i > 0 {
			sep = "; "
		}
		line += sep + w
	}
	return line
}

func (l *lifecycle) reserveFailed(kind, why string) {
	l.state = stateFailed
	l.do(actTimer{"reserve", 0})
	f := &clusterpb.Failure{Kind: kind, Summary: why, ExitCode: 75, Remedy: "ask for fewer or smaller executors, or give --reserve-timeout more time"}
	if kind == "timeout" {
		f.Summary = fmt.Sprintf("not reserved within %s: %s", l.limits.reserve, why)
	}
	l.do(actReserveFailed{f})
	l.do(actRelease{"not reserved: " + why})
}

// reset frees everything a run may have left and replaces what was lost.
func (l *lifecycle) reset(hard bool) {
	if l.state != stateReady && l.state != stateReserving {
		return
	}
	if l.active() {
		l.outcome("stopped", &clusterpb.Failure{Kind: "canceled", Summary: "ended by reset"}, 0)
	}
	l.next = nil
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

func (l *lifecycle) shutdown(reason string) {
	if l.state == stateReleasing {
		return
	}
	if l.active() {
		l.outcome("stopped", &clusterpb.Failure{Kind: "canceled", Summary: "ended by the cluster's shutdown: " + reason}, 0)
	}
	l.state, l.released = stateReleasing, reason
	for _, x := range l.execs {
		if x.state == execReady || x.state == execJoined || x.state == execSilent {
			l.do(actSend{x.id, release(reason)})
		}
	}
	l.do(actRelease{reason})
}

// active is whether a run is on whose outcome is open.
func (l *lifecycle) active() bool { return l.run != nil && l.run.state.open() }

// idle starts the clock when nobody looks and nothing runs, and stops it otherwise.
func (l *lifecycle) idle() {
	if l.limits.idle == 0 {
		return
	}
	counting := l.state == stateReady && l.clients == 0 && !l.active() && l.next == nil
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

package cluster

import (
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

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
	why         string   // what is awaited, or why it was lost
	sudden      bool     // its connection broke a moment after it spoke
	kept        bool     // what was granted is an earlier driver's agent
	replaced    int      // replacements since the last reset
	said        []string // the last lines of the last agent that was lost, where the engine knows them

	// of the active run
	port    int32
	address string
	busy    bool // a process of a run is, or may be, alive here
	unknown int  // the attempt of a task that the agent came back without
	missed  bool // the word to end it, with its grace, since the agent was silent
	grace   time.Duration
	left    bool // the attempt goes on without it: a sidecar's that did not come back
}

// expects is whether an agent may join: not one that has been replaced, nor any once
// the cluster is given back.
func (l *lifecycle) expects(id ExecutorID, attempt int) bool {
	x := l.exec(id)
	return x != nil && attempt >= x.attempt && l.state < stateReleasing
}

func (l *lifecycle) joined(e evJoined) {
	if !l.expects(e.exec, e.attempt) {
		return
	}
	x := l.exec(e.exec)
	l.do(actTimer{"silent " + string(x.id), 0})
	again := x.incarnation == e.incarnation && x.incarnation != ""
	if !again && (x.busy || l.waits(x)) {
		// Another process speaks for the executor: what ran there is gone.
		l.taskGone(x, "its agent was replaced")
	}
	x.attempt, x.incarnation, x.host, x.address, x.warm = e.attempt, e.incarnation, e.host, e.address, e.warm
	l.setState(x, execJoined)
	x.why, x.said = "Python is warming up", nil
	if e.warm {
		l.setState(x, execReady)
		x.why = ""
	}
	l.rejoined(x, e.tasks)
	l.launchDue()
	l.becomeReady()
}

// anew gives up an executor for the attempt of it that the engine is asked for. Its agent
// is told the reason.
func (l *lifecycle) anew(x *executor, attempt int, reason, awaited string) {
	if x == nil || attempt <= x.attempt || l.state >= stateReleasing {
		return
	}
	if x.state == execJoined || x.state == execReady || x.state == execSilent {
		l.do(actSend{x.id, release(reason)}, actTimer{"silent " + string(x.id), 0})
	}
	x.attempt, x.incarnation, x.warm, x.host = attempt, "", false, ""
	l.setState(x, execPending)
	x.why = awaited
}

// returned gives up all that a reservation has got so far. What it takes its time for is
// still counted from its beginning.
func (l *lifecycle) returned(e evReturned) {
	if l.state >= stateReleasing {
		return
	}
	for _, x := range l.execs {
		if attempt, ok := e.attempts[x.id]; ok {
			l.anew(x, attempt, "its executor is given back to the engine", "given back for a while")
		}
	}
	l.note(false, "%s", e.why)
}

// becomeReady ends the reservation once nobody is missing, and lets a start that
// waited for a replaced executor go on.
func (l *lifecycle) becomeReady() {
	if l.takingOver {
		return
	}
	if l.state == stateReserving {
		if l.count.unready > 0 {
			return
		}
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
	l.setState(x, execLost)
	x.why, x.warm, x.incarnation = cause, false, ""
	l.do(actTimer{"silent " + string(x.id), 0})
	if l.state >= stateReleasing {
		l.setBusy(x, false)
		return
	}
	l.taskGone(x, "executor lost: "+cause)
	if l.run != nil && l.run.state == runPreparing && !x.left { // ports are held anew once all are here again
		l.run.state = runWaiting
	}
	if x.replaced >= maxReplacements {
		l.note(true, "executor %s (%s) was lost %d times, the last time: %s. %%tfcluster reset tries again", x.id, x.task, x.replaced+1, cause)
		l.giveUp(x)
		return
	}
	if wasHere {
		l.note(true, "executor %s (%s on %s) was lost: %s; asking for another", x.id, x.task, x.host, cause)
	}
	l.replace(x)
}

// maxReplacements bounds how often one executor is replaced between two runs or resets.
const maxReplacements = 3

// givenUp is whether an executor is lost and no other is asked for.
func (x *executor) givenUp() bool { return x.state == execLost && x.replaced >= maxReplacements }

// giveUp ends what waits for an executor that does not stay.
func (l *lifecycle) giveUp(x *executor) {
	switch {
	case l.state == stateReserving:
		l.reserveFailed("engine", l.notKept(x).GetSummary())
	case l.next != nil:
		l.startFailed(l.notKept(x))
	case l.run == nil || !l.run.awaitsExecutors():
	case l.policy(x.task.Role).kind == Sidecar:
		l.leave(x)
		l.advance()
	default:
		l.outcome("failed", l.notKept(x), 0)
	}
}

// awaitsExecutors is whether the next attempt begins when every executor is there.
func (r *run) awaitsExecutors() bool { return r.state == runRestarting || r.state == runWaiting }

// leave lets the next attempt begin without a sidecar's executor. Its peers are told
// the address it had, where nobody answers: they would find no other if it died later.
func (l *lifecycle) leave(x *executor) {
	if !x.left {
		l.setLeft(x, true)
		l.note(true, "%s is not waited for: executor %s %s; training goes on without it", x.task, x.id, x.whyNot())
	}
}

func (x *executor) whyNot() string {
	if x.givenUp() {
		return "does not stay: " + x.why
	}
	return "did not come: " + x.why
}

// regain asks again for what was given up and a restart cannot do without.
func (l *lifecycle) regain() {
	for _, x := range l.execs {
		switch {
		case !x.givenUp():
		case l.policy(x.task.Role).kind == Sidecar:
			l.leave(x)
		default:
			x.replaced = 0
			l.note(true, "executor %s (%s) was given up, and is needed again: asking for another", x.id, x.task)
			l.replace(x)
		}
	}
}

// leaveSidecars lets an attempt begin that waits for sidecars' executors alone. It
// reports false where another is missing.
func (l *lifecycle) leaveSidecars() bool {
	var late []*executor
	for _, x := range l.execs {
		switch {
		case x.busy:
			return false
		case x.state == execReady || x.left:
		case l.policy(x.task.Role).kind != Sidecar:
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

func (l *lifecycle) notKept(x *executor) *clusterpb.Failure {
	return &clusterpb.Failure{
		Kind: "engine", Task: x.task.String(), Host: x.host, ExitCode: 75, Lines: x.said, Summary: fmt.Sprintf("executor %s for %s does not stay: %s", x.id, x.task, x.why),
		Remedy: "%tfcluster reset asks for it again",
	}
}

func (l *lifecycle) replace(x *executor) {
	x.replaced++
	x.attempt++
	l.setBusy(x, false)
	l.setState(x, execPending)
	x.incarnation, x.warm = "", false
	l.do(actReplace{x.id})
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
	if l.takingOver {
		line += "; the engine has not said which of them it keeps"
	}
	for i, w := range who {
		sep := "; missing "
		if i > 0 {
			sep = "; "
		}
		line += sep + w
	}
	return line
}

// environmentFailed is the kind of a failure for which no executor can be blamed: what is
// asked for cannot run there.
const environmentFailed = "environment"

func (l *lifecycle) reserveFailed(kind, why string) {
	l.state = stateFailed
	l.do(actTimer{"reserve", 0})
	f := &clusterpb.Failure{Kind: kind, Summary: why, ExitCode: 75}
	for _, x := range l.execs {
		if x.state != execReady && len(x.said) > 0 && len(f.Lines) == 0 {
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
	l.do(actReserveFailed{f})
	l.farewell("not reserved")
	l.do(actRelease{"not reserved: " + why})
}

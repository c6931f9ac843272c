package cluster

import (
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// A run is stopped so that its programs can save what they have:
//
//  1. The tasks that train are asked for their step. Those that report steps get
//     the number of one step, the agreed step, and leave at its end. A task that left earlier than the
//     others would block them in a collective. So a task that has passed the named step
//     says so, a later one is named, and no task leaves before all have agreed.
//  2. Tasks that report no steps get SIGTERM: at once where no task reports steps, else
//     as soon as the first task has left.
//  3. Parameter servers, sidecars and workers in Server.join() get SIGTERM when no task
//     trains any more: a program that saves may need them until then.
//  4. A task that the request does not reach, since it waits in native code for a peer
//     that has left, is killed a few seconds after the first exit. A task that has begun
//     to leave has the whole grace.
type stopPlan struct {
	grace time.Duration
	phase stopPhase
	round int                        // of questions for the step
	steps map[TaskID]*clusterpb.Step // where the tasks are
	named *clusterpb.ActAtStep       // the step that they are to leave at
	ready map[TaskID]bool            // who will
	ended bool                       // a task has ended, and the clock for the others runs
	seen  [stopScans]int             // executors that anyBusy need not look at again
}

// What anyBusy looks for, so that it looks at each executor once.
const (
	scanUnanswered = iota
	scanUnready
	scanTraining
	scanUnasked
	scanUnsignaled
	stopScans
)

// anyBusy is whether a task with a living process matches. Once a task does not match, it is
// not looked at again before seen is cleared: when something else is asked of the tasks, or
// one enters its program, which may have something to save from then on.
func (l *lifecycle) anyBusy(scan int, matches func(*task) bool) bool {
	s := l.run.stop
	for ; s.seen[scan] < len(l.execs); s.seen[scan]++ {
		if x := l.execs[s.seen[scan]]; x.busy && matches(l.run.task(x.task)) {
			return true
		}
	}
	return false
}

type stopPhase int

const (
	stopAsking   stopPhase = iota // the tasks are asked for their step
	stopPausing                   // they count differently, and are asked again in a moment
	stopNamed                     // a step was named; not every task has said that it will leave there
	stopAgreed                    // every task leaves there
	stopSignaled                  // all who train have got SIGTERM, or are leaving
)

// maxRounds bounds how often tasks are asked for their step, and steps are named.
const maxRounds = 5

// stop ends a run on request; a second request without grace kills.
func (l *lifecycle) stop(e evStop) {
	if l.next != nil && !l.active() {
		l.next = nil
		l.do(actTimer{"enter", 0})
		l.do(actRunOver{})
		return
	}
	if !l.active() {
		return
	}
	r := l.run
	reason := e.reason
	if reason == "" {
		reason = "stopped"
	}
	if r.stopping && e.grace > 0 {
		return
	}
	r.stopping = true
	r.stop = &stopPlan{grace: e.grace, phase: stopSignaled}
	r.failure = &clusterpb.Failure{Kind: "canceled", Summary: reason}
	busy := l.busyTasks(func(*task) bool { return true })
	if len(busy) == 0 {
		l.outcome("stopped", r.failure, 0)
		return
	}
	if e.grace > 0 && r.state == runRunning {
		l.do(actTimer{"stop", e.grace})
		l.askSteps()
	} else {
		for _, t := range busy {
			l.end(l.exec(t.exec), e.grace)
		}
	}
	l.do(actTimer{"ending", e.grace + l.limits.ending})
	l.do(actRunChanged{})
}

// busyTasks returns the tasks with a living process that match, in the executors' order.
func (l *lifecycle) busyTasks(matches func(*task) bool) []*task {
	var ts []*task
	for _, x := range l.execs {
		if t := l.run.task(x.task); x.busy && t != nil && matches(t) {
			ts = append(ts, t)
		}
	}
	return ts
}

// trains is whether a task's program may have something to save. An evaluator, and a
// task that has not entered its program, has not; the other kinds serve those that train.
func (l *lifecycle) trains(t *task) bool {
	return t.entered && !t.joinedServer && l.policy(t.id.Role).kind == Tracked
}

// askSteps asks those who train for their step and signals those who need not be waited for.
func (l *lifecycle) askSteps() {
	s := l.run.stop
	s.phase, s.steps, s.seen = stopAsking, map[TaskID]*clusterpb.Step{}, [stopScans]int{}
	s.round++
	asked := false
	for _, t := range l.busyTasks(func(t *task) bool { return !t.asked }) {
		switch {
		case l.trains(t):
			asked = true
			l.do(actSend{t.exec, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_AskStep{
				AskStep: &clusterpb.AskStep{Run: l.run.spec.id, Round: int32(s.round)},
			}}})
		case !t.entered, t.id.Role == Evaluator:
			l.end(l.exec(t.exec), s.grace)
		}
	}
	if !asked {
		l.signalTrainers()
		return
	}
	l.do(actTimer{"stop step", l.limits.askStep})
}

// stepAnswered takes a task's answer to a question for its step, or its word that it has
// passed the named step.
func (l *lifecycle) stepAnswered(e evStepAnswer) {
	t := l.openTask(e.run, e.task)
	if t == nil || e.attempt != t.attempt || l.run.stop == nil || int(e.step.GetRound()) != l.run.stop.round {
		return
	}
	s := l.run.stop
	switch {
	case s.phase == stopAsking:
		s.steps[t.id] = e.step
		l.nameOnceAnswered()
	case s.phase == stopNamed && !e.step.GetPassed():
		s.ready[t.id] = true
		l.confirmOnceReady()
	case s.phase == stopNamed && s.round < maxRounds:
		s.steps[t.id] = e.step
		s.round++
		l.name()
	}
}

// nameOnceAnswered goes on when no answer is missing any more.
func (l *lifecycle) nameOnceAnswered() {
	if !l.anyBusy(scanUnanswered, func(t *task) bool { return l.trains(t) && l.run.stop.steps[t.id] == nil }) {
		l.name()
	}
}

// reporters are the tasks that have said where they are.
func (l *lifecycle) reporters() []*task { return l.busyTasks(l.reports) }

func (l *lifecycle) reports(t *task) bool {
	return l.trains(t) && !t.leaving && l.run.stop.steps[t.id].GetCounter() != ""
}

// name tells those who report steps at the end of which one they are to leave.
func (l *lifecycle) name() {
	s := l.run.stop
	s.seen = [stopScans]int{}
	reporters := l.reporters()
	counters := map[string]bool{}
	var answers []*clusterpb.Step
	for _, t := range reporters {
		answers = append(answers, s.steps[t.id])
		counters[s.steps[t.id].GetCounter()] = true
	}
	switch {
	case len(counters) > 1 && s.round < maxRounds: // between fit and a loop of the program's own
		s.phase = stopPausing
		l.do(actTimer{"stop step", l.limits.lead})
		return
	case len(counters) != 1:
		l.signalTrainers()
		return
	}
	step, within := agreedStep(answers, l.limits.lead)
	s.phase, s.ready = stopNamed, map[TaskID]bool{}
	s.named = &clusterpb.ActAtStep{
		Run: l.run.spec.id, Round: int32(s.round), Counter: answers[0].GetCounter(), Step: step, Action: clusterpb.ActAtStep_STOP,
	}
	for _, t := range reporters {
		l.do(actSend{t.exec, actAtStep(s.named)})
	}
	l.do(actTimer{"stop step", min(within, s.grace/2)})
}

// confirmOnceReady lets the tasks leave at the named step once each has said that it will.
func (l *lifecycle) confirmOnceReady() {
	s := l.run.stop
	if l.anyBusy(scanUnready, func(t *task) bool { return l.reports(t) && !s.ready[t.id] }) {
		return
	}
	var names []string
	for _, t := range l.reporters() {
		names = append(names, t.id.String())
	}
	s.phase, s.seen = stopAgreed, [stopScans]int{}
	confirmed := proto.CloneOf(s.named)
	confirmed.Confirmed = true
	for _, t := range l.reporters() {
		t.asked = true
		l.do(actSend{t.exec, actAtStep(confirmed)})
	}
	if len(names) > 1 {
		l.note(false, "stopping %s at the end of the same step", strings.Join(names, ", "))
	}
}

func actAtStep(a *clusterpb.ActAtStep) *clusterpb.Instruction {
	return &clusterpb.Instruction{Instruction: &clusterpb.Instruction_ActAtStep{ActAtStep: a}}
}

// agreedStep returns the step at whose end all tasks can act, and the time after which
// those that have not reached it are not waited for. The step is as many reports ahead
// of the task that is furthest as take lead, so that every task hears of it before it
// ends the step, and none has to wait there; at least two, or one where steps take ten
// times that long.
func agreedStep(answers []*clusterpb.Step, lead time.Duration) (step int64, within time.Duration) {
	furthest, last, stride := int64(math.MinInt64), int64(math.MaxInt64), int64(1)
	fastest, slowest := math.Inf(1), 0.0
	for _, a := range answers {
		furthest, last, stride = max(furthest, a.GetStep()), min(last, a.GetStep()), max(stride, a.GetStride())
		fastest, slowest = min(fastest, a.GetReportSeconds()), max(slowest, a.GetReportSeconds())
	}
	ahead := int64(2)
	switch {
	case !(fastest > 0) || math.IsInf(fastest, 0):
	case fastest > 10*lead.Seconds():
		ahead = 1
	default:
		ahead = max(ahead, int64(min(lead.Seconds()/fastest, 1e6))+1)
	}
	step = furthest + ahead*stride
	expected := time.Duration(min(float64((step-last)/stride)*slowest, 3600) * float64(time.Second))
	return step, max(2*time.Second, 3*expected)
}

// signalTrainers sends SIGTERM to those who train and are not leaving yet.
func (l *lifecycle) signalTrainers() {
	s := l.run.stop
	s.phase, s.seen = stopSignaled, [stopScans]int{}
	l.signal(l.busyTasks(func(t *task) bool { return l.trains(t) && !t.leaving && !t.signaled }))
	l.do(actTimer{"stop step", 0})
	l.signalServers()
}

// signalServers sends SIGTERM to everyone else once no task trains any more.
func (l *lifecycle) signalServers() {
	unsignaled := func(t *task) bool { return !t.signaled }
	if l.anyBusy(scanTraining, l.trains) || !l.anyBusy(scanUnsignaled, unsignaled) {
		return
	}
	l.signal(l.busyTasks(unsignaled))
}

// signal sends SIGTERM to tasks. Those that do not react have the same time from now on
// as others had from the first exit.
func (l *lifecycle) signal(ts []*task) {
	s := l.run.stop
	for _, t := range ts {
		l.end(l.exec(t.exec), s.grace)
	}
	if s.ended && len(ts) > 0 {
		l.do(actTimer{"stop unresponsive", l.limits.noReply})
	}
}

// stoppedOne goes on with a stop after a task's end, and closes the run with the last one.
func (l *lifecycle) stoppedOne() {
	s := l.run.stop
	if l.count.busy == 0 {
		l.outcome("stopped", l.run.failure, 0)
		return
	}
	first := !s.ended
	if s.grace > 0 && first {
		s.ended = true
		l.do(actTimer{"stop unresponsive", l.limits.noReply})
	}
	switch s.phase {
	case stopAsking:
		l.nameOnceAnswered()
	case stopNamed:
		l.signalTrainers()
	case stopAgreed: // its peers leave too in a moment, or never reach the step without it
		unasked := func(t *task) bool { return l.trains(t) && !t.asked }
		if l.anyBusy(scanUnasked, unasked) {
			l.signal(l.busyTasks(unasked))
		}
		if first {
			l.do(actTimer{"stop step", l.limits.straggle})
		}
	case stopSignaled:
		l.signalServers()
	}
}

func (l *lifecycle) stopTimer(name string) {
	r := l.run
	if r.stop == nil || !r.state.open() {
		return
	}
	switch name {
	case "stop": // the grace is over
		for _, t := range l.busyTasks(func(*task) bool { return true }) {
			l.end(l.exec(t.exec), 0)
		}
	case "stop step":
		switch r.stop.phase {
		case stopAsking:
			l.name()
		case stopPausing:
			l.askSteps()
		default:
			l.signalTrainers()
		}
	case "stop unresponsive":
		l.killUnresponsive()
	}
}

// stopsAgain gives a task whose agent has come back the time to say that it is leaving.
func (l *lifecycle) stopsAgain() {
	s := l.run.stop
	if s != nil && s.grace > 0 && slices.ContainsFunc(l.run.tasks, func(t *task) bool { return t.exit != nil }) {
		s.ended = true
		l.do(actTimer{"stop unresponsive", l.limits.noReply})
	}
}

// killUnresponsive kills the tasks that SIGTERM has not reached though a peer has ended.
// What a task whose agent is silent has heard of it is not known.
func (l *lifecycle) killUnresponsive() {
	l.run.stop.ended = false // the next exit starts the clock for those that were signaled meanwhile
	stuck := l.busyTasks(func(t *task) bool { return t.signaled && !t.leaving && l.exec(t.exec).state != execSilent })
	var names []string
	for _, t := range stuck {
		names = append(names, t.id.String())
		l.end(l.exec(t.exec), 0)
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	l.note(true, "killed %s: the stop had not reached the program %s after another task ended; it was in native code, for example in a collective that a task had left",
		strings.Join(names, ", "), l.limits.noReply)
}

package lifecycle

import (
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
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
	round int                                // of questions for the step
	steps map[cluster.TaskID]*clusterpb.Step // where the tasks are
	named *clusterpb.ActAtStep               // the step that they are to leave at
	ready map[cluster.TaskID]bool            // who will
	ended bool                               // a task has ended, and the clock for the others runs
	seen  [stopScans]int                     // executors that anyBusy need not look at again
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
func (l *Machine) anyBusy(scan int, matches func(*Task) bool) bool {
	s := l.run.stop
	for ; s.seen[scan] < len(l.execs); s.seen[scan]++ {
		if x := l.execs[s.seen[scan]]; x.Busy && matches(l.run.task(x.Task)) {
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
func (l *Machine) stop(e StopRequested) {
	if l.next != nil && !l.Active() {
		l.next = nil
		l.do(SetTimer{"enter", 0})
		l.do(RunOver{})
		return
	}
	if !l.Active() {
		return
	}
	r := l.run
	reason := e.Reason
	if reason == "" {
		reason = "stopped"
	}
	if r.Stopping && e.Grace > 0 {
		return
	}
	r.Stopping = true
	r.stop = &stopPlan{grace: e.Grace, phase: stopSignaled}
	r.Failure = &clusterpb.Failure{Kind: "canceled", Summary: reason}
	busy := l.busyTasks(func(*Task) bool { return true })
	if len(busy) == 0 {
		l.outcome("stopped", r.Failure, 0)
		return
	}
	if e.Grace > 0 && r.State == RunRunning {
		l.do(SetTimer{"stop", e.Grace})
		l.askSteps()
	} else {
		for _, t := range busy {
			l.end(l.Executor(t.exec), e.Grace)
		}
	}
	l.do(SetTimer{"ending", e.Grace + l.limits.ending})
	l.do(RunChanged{})
}

// busyTasks returns the tasks with a living process that match, in the executors' order.
func (l *Machine) busyTasks(matches func(*Task) bool) []*Task {
	var ts []*Task
	for _, x := range l.execs {
		if t := l.run.task(x.Task); x.Busy && t != nil && matches(t) {
			ts = append(ts, t)
		}
	}
	return ts
}

// trains is whether a task's program may have something to save. An evaluator, and a
// task that has not entered its program, has not; the other kinds serve those that train.
func (l *Machine) trains(t *Task) bool {
	return t.entered && !t.joinedServer && l.policy(t.ID.Role).kind == cluster.Tracked
}

// askSteps asks those who train for their step and signals those who need not be waited for.
func (l *Machine) askSteps() {
	s := l.run.stop
	s.phase, s.steps, s.seen = stopAsking, map[cluster.TaskID]*clusterpb.Step{}, [stopScans]int{}
	s.round++
	asked := false
	for _, t := range l.busyTasks(func(t *Task) bool { return !t.asked }) {
		switch {
		case l.trains(t):
			asked = true
			l.do(SendInstruction{t.exec, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_AskStep{
				AskStep: &clusterpb.AskStep{Run: l.run.Spec.ID, Round: int32(s.round)},
			}}})
		case !t.entered, t.ID.Role == cluster.Evaluator:
			l.end(l.Executor(t.exec), s.grace)
		}
	}
	if !asked {
		l.signalTrainers()
		return
	}
	l.do(SetTimer{"stop step", l.limits.askStep})
}

// stepAnswered takes a task's answer to a question for its step, or its word that it has
// passed the named step.
func (l *Machine) stepAnswered(e StepAnswered) {
	t := l.OpenTask(e.Run, e.Task)
	if t == nil || e.Attempt != t.Attempt || l.run.stop == nil || int(e.Step.GetRound()) != l.run.stop.round {
		return
	}
	s := l.run.stop
	switch {
	case s.phase == stopAsking:
		s.steps[t.ID] = e.Step
		l.nameOnceAnswered()
	case s.phase == stopNamed && !e.Step.GetPassed():
		s.ready[t.ID] = true
		l.confirmOnceReady()
	case s.phase == stopNamed && s.round < maxRounds:
		s.steps[t.ID] = e.Step
		s.round++
		l.name()
	}
}

// nameOnceAnswered goes on when no answer is missing any more.
func (l *Machine) nameOnceAnswered() {
	if !l.anyBusy(scanUnanswered, func(t *Task) bool { return l.trains(t) && l.run.stop.steps[t.ID] == nil }) {
		l.name()
	}
}

// reporters are the tasks that have said where they are.
func (l *Machine) reporters() []*Task { return l.busyTasks(l.reports) }

func (l *Machine) reports(t *Task) bool {
	return l.trains(t) && !t.leaving && l.run.stop.steps[t.ID].GetCounter() != ""
}

// name tells those who report steps at the end of which one they are to leave.
func (l *Machine) name() {
	s := l.run.stop
	s.seen = [stopScans]int{}
	reporters := l.reporters()
	counters := map[string]bool{}
	var answers []*clusterpb.Step
	for _, t := range reporters {
		answers = append(answers, s.steps[t.ID])
		counters[s.steps[t.ID].GetCounter()] = true
	}
	switch {
	case len(counters) > 1 && s.round < maxRounds: // between fit and a loop of the program's own
		s.phase = stopPausing
		l.do(SetTimer{"stop step", l.limits.lead})
		return
	case len(counters) != 1:
		l.signalTrainers()
		return
	}
	step, within := agreedStep(answers, l.limits.lead)
	s.phase, s.ready = stopNamed, map[cluster.TaskID]bool{}
	s.named = &clusterpb.ActAtStep{
		Run: l.run.Spec.ID, Round: int32(s.round), Counter: answers[0].GetCounter(), Step: step, Action: clusterpb.ActAtStep_STOP,
	}
	for _, t := range reporters {
		l.do(SendInstruction{t.exec, actAtStep(s.named)})
	}
	l.do(SetTimer{"stop step", min(within, s.grace/2)})
}

// confirmOnceReady lets the tasks leave at the named step once each has said that it will.
func (l *Machine) confirmOnceReady() {
	s := l.run.stop
	if l.anyBusy(scanUnready, func(t *Task) bool { return l.reports(t) && !s.ready[t.ID] }) {
		return
	}
	var names []string
	for _, t := range l.reporters() {
		names = append(names, t.ID.String())
	}
	s.phase, s.seen = stopAgreed, [stopScans]int{}
	confirmed := proto.CloneOf(s.named)
	confirmed.Confirmed = true
	for _, t := range l.reporters() {
		t.asked = true
		l.do(SendInstruction{t.exec, actAtStep(confirmed)})
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
func (l *Machine) signalTrainers() {
	s := l.run.stop
	s.phase, s.seen = stopSignaled, [stopScans]int{}
	l.signal(l.busyTasks(func(t *Task) bool { return l.trains(t) && !t.leaving && !t.signaled }))
	l.do(SetTimer{"stop step", 0})
	l.signalServers()
}

// signalServers sends SIGTERM to everyone else once no task trains any more.
func (l *Machine) signalServers() {
	unsignaled := func(t *Task) bool { return !t.signaled }
	if l.anyBusy(scanTraining, l.trains) || !l.anyBusy(scanUnsignaled, unsignaled) {
		return
	}
	l.signal(l.busyTasks(unsignaled))
}

// signal sends SIGTERM to tasks. Those that do not react have the same time from now on
// as others had from the first exit.
func (l *Machine) signal(ts []*Task) {
	s := l.run.stop
	for _, t := range ts {
		l.end(l.Executor(t.exec), s.grace)
	}
	if s.ended && len(ts) > 0 {
		l.do(SetTimer{"stop unresponsive", l.limits.noReply})
	}
}

// stoppedOne goes on with a stop after a task's end, and closes the run with the last one.
func (l *Machine) stoppedOne() {
	s := l.run.stop
	if l.count.busy == 0 {
		l.outcome("stopped", l.run.Failure, 0)
		return
	}
	first := !s.ended
	if s.grace > 0 && first {
		s.ended = true
		l.do(SetTimer{"stop unresponsive", l.limits.noReply})
	}
	switch s.phase {
	case stopAsking:
		l.nameOnceAnswered()
	case stopNamed:
		l.signalTrainers()
	case stopAgreed: // its peers leave too in a moment, or never reach the step without it
		unasked := func(t *Task) bool { return l.trains(t) && !t.asked }
		if l.anyBusy(scanUnasked, unasked) {
			l.signal(l.busyTasks(unasked))
		}
		if first {
			l.do(SetTimer{"stop step", l.limits.straggle})
		}
	case stopSignaled:
		l.signalServers()
	}
}

func (l *Machine) stopTimer(name string) {
	r := l.run
	if r.stop == nil || !r.State.Open() {
		return
	}
	switch name {
	case "stop": // the grace is over
		for _, t := range l.busyTasks(func(*Task) bool { return true }) {
			l.end(l.Executor(t.exec), 0)
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
func (l *Machine) stopsAgain() {
	s := l.run.stop
	if s != nil && s.grace > 0 && slices.ContainsFunc(l.run.Tasks, func(t *Task) bool { return t.Exit != nil }) {
		s.ended = true
		l.do(SetTimer{"stop unresponsive", l.limits.noReply})
	}
}

// killUnresponsive kills the tasks that SIGTERM has not reached though a peer has ended.
// What a task whose agent is silent has heard of it is not known.
func (l *Machine) killUnresponsive() {
	l.run.stop.ended = false // the next exit starts the clock for those that were signaled meanwhile
	stuck := l.busyTasks(func(t *Task) bool { return t.signaled && !t.leaving && l.Executor(t.exec).State != ExecutorSilent })
	var names []string
	for _, t := range stuck {
		names = append(names, t.ID.String())
		l.end(l.Executor(t.exec), 0)
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	l.note(true, "killed %s: the stop had not reached the program %s after another task ended; it was in native code, for example in a collective that a task had left",
		strings.Join(names, ", "), l.limits.noReply)
}

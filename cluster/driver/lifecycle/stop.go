package lifecycle

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// A stop gives the programs time to save their state:
//
//  1. Training tasks are asked for their step. Those that report steps receive the number of a
//     later step, the agreed step, and exit at its end. A task that exits earlier than the
//     others would block them in a collective operation. So if a task has already passed the
//     named step, it reports so and a later step is named; no task exits before all have
//     agreed.
//  2. Tasks that report no steps receive SIGTERM: at once if no task reports steps, otherwise
//     when the first task has exited.
//  3. Parameter servers, sidecars and workers in Server.join() receive SIGTERM when no task
//     trains any more, because a program that saves may need them until then.
//  4. A task that the request does not reach, because it waits in native code for a peer that
//     has exited, is killed a few seconds after the first exit. A task that the request has
//     reached has the full grace period.
type stopPlan struct {
	grace time.Duration
	phase stopPhase
	round int                                // number of the current question; answers to earlier ones are ignored
	steps map[cluster.TaskID]*clusterpb.Step // the answers
	named *clusterpb.ActAtStep               // the step to exit at
	ready map[cluster.TaskID]bool            // tasks that have agreed to it
	ended bool                               // a task has exited, and the timer for unresponsive tasks runs
	seen  [stopScans]int                     // per scan: number of executors that anyBusy need not look at again
}

// Conditions that anyBusy scans for. Each has its own position, so each executor is scanned
// once.
const (
	scanUnanswered = iota
	scanUnready
	scanTraining
	scanUnasked
	scanUnsignaled
	stopScans
)

// anyBusy reports whether a task with a live process matches. A task that does not match is not
// scanned again until seen is cleared: when the tasks are asked something else, or when a task
// enters its program and may have state to save from then on.
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
	stopAsking   stopPhase = iota // the tasks were asked for their step
	stopPausing                   // their answers count different things; they are asked again after a moment
	stopNamed                     // a step was named; not every task has agreed to exit there
	stopAgreed                    // every task exits there
	stopSignaled                  // all training tasks have received SIGTERM or are exiting
)

// maxRounds limits how often tasks are asked for their step and steps are named.
const maxRounds = 5

// stop ends a run on request; a second request without a grace period kills its tasks.
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
	if r.Stopping && e.Grace > 0 {
		return
	}
	r.Stopping, r.undecided = true, undecided{} // a failure that waits for its root cause has none any more
	l.do(SetTimer{"settle", 0})
	r.stop = &stopPlan{grace: e.Grace, phase: stopSignaled}
	r.Failure = &clusterpb.Failure{Kind: "canceled", Summary: cmp.Or(e.Reason, "stopped")}
	busy := l.busyTasks(func(*Task) bool { return true })
	if len(busy) == 0 {
		l.closeRun("stopped", r.Failure, 0)
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

// busyTasks returns the tasks with a live process that match, in the order of the executors.
func (l *Machine) busyTasks(matches func(*Task) bool) []*Task {
	var ts []*Task
	for _, x := range l.execs {
		if t := l.run.task(x.Task); x.Busy && t != nil && matches(t) {
			ts = append(ts, t)
		}
	}
	return ts
}

// trains reports whether a task's program may have state to save. An evaluator and a task that
// has not entered its program have none; roles that are not tracked serve the training tasks.
func (l *Machine) trains(t *Task) bool {
	return t.entered && !t.JoinedServer && l.policy(t.ID.Role).kind == cluster.Tracked
}

// askSteps asks training tasks for their step and signals tasks that need not be waited for.
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

// stepAnswered processes a task's answer: its step, its agreement to the named step, or the
// report that it has passed that step.
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
		l.nameStep()
	}
}

// nameOnceAnswered names a step once no answer is missing.
func (l *Machine) nameOnceAnswered() {
	if !l.anyBusy(scanUnanswered, func(t *Task) bool { return l.trains(t) && l.run.stop.steps[t.ID] == nil }) {
		l.nameStep()
	}
}

// reports reports whether a task is one of the training tasks that have reported their step.
func (l *Machine) reports(t *Task) bool {
	return l.trains(t) && !t.leaving && l.run.stop.steps[t.ID].GetCounter() != ""
}

// nameStep sends the reporters the step at whose end they must exit.
func (l *Machine) nameStep() {
	s := l.run.stop
	s.seen = [stopScans]int{}
	reporters := l.busyTasks(l.reports)
	counters := map[string]bool{}
	var answers []*clusterpb.Step
	for _, t := range reporters {
		answers = append(answers, s.steps[t.ID])
		counters[s.steps[t.ID].GetCounter()] = true
	}
	switch {
	case len(counters) > 1 && s.round < maxRounds: // some are in fit, others in a loop of the program
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
		Run: l.run.Spec.ID, Round: int32(s.round), Counter: answers[0].GetCounter(), Step: step,
		Action: clusterpb.ActAtStep_STOP,
	}
	for _, t := range reporters {
		l.do(SendInstruction{t.exec, actAtStep(s.named)})
	}
	l.do(SetTimer{"stop step", min(within, s.grace/2)})
}

// confirmOnceReady confirms the named step once every reporter has agreed to it.
func (l *Machine) confirmOnceReady() {
	s := l.run.stop
	if l.anyBusy(scanUnready, func(t *Task) bool { return l.reports(t) && !s.ready[t.ID] }) {
		return
	}
	s.phase, s.seen = stopAgreed, [stopScans]int{}
	confirmed := proto.CloneOf(s.named)
	confirmed.Confirmed = true
	var names []string
	for _, t := range l.busyTasks(l.reports) {
		names = append(names, t.ID.String())
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

// agreedStep returns a step at whose end all tasks can act, and how long to wait for tasks to
// reach it. The step lies ahead of the furthest task by the number of reports that take lead,
// so that the instruction reaches every task before it ends that step and no task has to wait
// there. The distance is at least two reports, or one if a report takes more than ten times
// lead.
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

// signalTrainers sends SIGTERM to the training tasks that are not exiting yet.
func (l *Machine) signalTrainers() {
	s := l.run.stop
	s.phase, s.seen = stopSignaled, [stopScans]int{}
	l.signal(l.busyTasks(func(t *Task) bool { return l.trains(t) && !t.leaving && !t.signaled }))
	l.do(SetTimer{"stop step", 0})
	l.signalServers()
}

// signalServers sends SIGTERM to all other tasks once no task trains any more.
func (l *Machine) signalServers() {
	unsignaled := func(t *Task) bool { return !t.signaled }
	if l.anyBusy(scanTraining, l.trains) || !l.anyBusy(scanUnsignaled, unsignaled) {
		return
	}
	l.signal(l.busyTasks(unsignaled))
}

// signal sends SIGTERM to tasks. If a task has already exited, the time for unresponsive tasks
// starts again.
func (l *Machine) signal(ts []*Task) {
	s := l.run.stop
	for _, t := range ts {
		l.end(l.Executor(t.exec), s.grace)
	}
	if s.ended && len(ts) > 0 {
		l.do(SetTimer{"stop unresponsive", l.limits.noReply})
	}
}

// stopTaskExited continues a stop after the exit of a task, and closes the run after the last
// one.
func (l *Machine) stopTaskExited() {
	s := l.run.stop
	if l.count.busy == 0 {
		l.closeRun("stopped", l.run.Failure, 0)
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
	case stopAgreed: // its peers exit in a moment too, or cannot reach the step without it
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
	case "stop": // the grace period is over
		for _, t := range l.busyTasks(func(*Task) bool { return true }) {
			l.end(l.Executor(t.exec), 0)
		}
	case "stop step":
		switch r.stop.phase {
		case stopAsking:
			l.nameStep()
		case stopPausing:
			l.askSteps()
		default:
			l.signalTrainers()
		}
	case "stop unresponsive":
		l.killUnresponsive()
	}
}

// resumeStop restarts the timer for unresponsive tasks when an agent has reconnected, so that
// its task can report that it is exiting.
func (l *Machine) resumeStop() {
	s := l.run.stop
	if s != nil && s.grace > 0 && slices.ContainsFunc(l.run.Tasks, func(t *Task) bool { return t.Exit != nil }) {
		s.ended = true
		l.do(SetTimer{"stop unresponsive", l.limits.noReply})
	}
}

// killUnresponsive kills the tasks that SIGTERM has not reached although a peer has exited.
// Tasks with a silent agent are spared: it is unknown whether the request has reached them.
func (l *Machine) killUnresponsive() {
	l.run.stop.ended = false // the next exit starts the timer for tasks signaled in the meantime
	stuck := func(t *Task) bool { return t.signaled && !t.leaving && l.Executor(t.exec).State != ExecutorSilent }
	var names []string
	for _, t := range l.busyTasks(stuck) {
		names = append(names, t.ID.String())
		l.end(l.Executor(t.exec), 0)
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	l.note(true,
		"killed %s: the stop request had not reached its program %s after another task exited; the program was in native "+
			"code, for example in a collective operation that waited for that task", strings.Join(names, ", "), l.limits.noReply)
}

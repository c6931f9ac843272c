package cluster

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// runSpec is what the lifecycle needs to know of a start.
type runSpec struct {
	id          int32
	maxRestarts int
	stepTimeout time.Duration
	runTimeout  time.Duration
}

type runState int

// A run's states. Those before runFinished are open: the outcome is not known.
const (
	runWaiting   runState = iota // for executors to be free and whole
	runPreparing                 // agents hold fresh ports
	runLaunching                 // not every task has entered
	runRunning
	runRestarting // the gang is being ended, to be launched again
	runFinished
	runFailed
	runStopped
)

func (s runState) open() bool { return s < runFinished }

func (s runState) String() string {
	return [...]string{"starting", "starting", "starting", "running", "restarting", "finished", "failed", "stopped"}[s]
}

// run is one start to its end. It stays until the next one, for status.
type run struct {
	spec     runSpec
	state    runState
	attempt  int
	restarts int
	tasks    []*task
	byID     map[TaskID]*task
	count    map[string]*taskCounts // by role
	cluster  Spec
	failure  *clusterpb.Failure
	entered  bool // every task of the first attempt has
	stopping bool
	stop     *stopPlan // while it is being stopped with time to save
	stacks   bool      // no step for too long: the tasks were asked where they are
	over     bool      // training is over; an evaluator may still look at the last checkpoint
	echoes   []*task   // failed in TensorFlow's word about a peer; the verdict is awaited
}

type taskState int

const (
	taskWaiting taskState = iota
	taskLaunching
	taskRunning
	taskExited
	taskEnded // ended by us, not by itself
)

func (s taskState) String() string {
	return [...]string{"waiting", "launching", "running", "exited", "ended"}[s]
}

type task struct {
	id           TaskID
	exec         ExecutorID
	state        taskState
	entered      bool
	joinedServer bool
	restarts     int
	attempt      int // the run's, plus loneRestart for each time it was launched alone
	exit         *clusterpb.Exited
	echo         bool
	stopped      bool   // its process is in state T
	asked        bool   // we asked it to end
	signaled     bool   // by SIGTERM or SIGKILL
	leaving      bool   // its program has been reached by the request to stop
	awaits       string // the role whose tasks come first, while it waits for them
}

func (l *lifecycle) stepRun(e event) {
	switch e := e.(type) {
	case evStart:
		l.next = &e.spec
		l.do(actTimer{"enter", l.limits.enter})
		l.do(actRunChanged{})
		for _, x := range l.execs {
			if x.givenUp() {
				l.startFailed(l.notKept(x))
				return
			}
		}
		l.advance()
	case evPrepared:
		l.prepared(e)
	case evEntered:
		if t := l.openTask(e.run, e.task); t != nil && t.state == taskLaunching {
			l.run.setTask(t, func() { t.state, t.entered = taskRunning, true })
			if l.run.stop != nil {
				l.run.stop.seen = [stopScans]int{}
			}
			l.exec(t.exec).unknown = 0
			l.do(actRunChanged{})
			l.launchDue()
			l.allEntered()
		}
	case evServerJoin:
		if t := l.openTask(e.run, e.task); t != nil {
			l.run.setTask(t, func() { t.joinedServer = true })
			l.launchDue()
			l.checkDone()
		}
	case evExited:
		l.exited(e)
	case evUsage:
		if x := l.exec(e.exec); x != nil {
			if _, runs := e.stopped[x.task]; runs {
				x.unknown = 0 // it was being launched when its agent came back
			}
		}
		if x := l.exec(e.exec); x != nil && l.run != nil {
			t := l.run.task(x.task)
			t.stopped = e.stopped[t.id]
		}
	case evStep:
		if r := l.run; r != nil && r.state.open() && r.spec.stepTimeout > 0 && !r.stopping {
			r.stacks = false
			l.do(actTimer{"step", r.spec.stepTimeout})
		}
	case evStop:
		l.stop(e)
	case evStepAnswer:
		l.stepAnswered(e)
	case evStopping:
		if t := l.openTask(e.run, e.task); t != nil && e.attempt == t.attempt {
			t.leaving = true
		}
	}
}

func (l *lifecycle) openTask(run int32, id TaskID) *task {
	if l.run == nil || l.run.spec.id != run {
		return nil
	}
	return l.run.task(id)
}

// advance lets the start that waits begin, or a restart go on, as soon as every
// executor is whole and free.
func (l *lifecycle) advance() {
	if l.state != stateReady {
		return
	}
	restart := l.run != nil && l.run.awaitsExecutors()
	if !restart && l.next == nil {
		return
	}
	if !restart && l.active() {
		return
	}
	if l.count.left == 0 && l.count.unready+l.count.busy > 0 {
		return
	}
	for _, x := range l.execs {
		l.setLeft(x, x.left && restart && x.state != execReady)
		if !x.left && (x.state != execReady || x.busy) {
			return
		}
	}
	if !restart {
		l.run = &run{spec: *l.next}
		l.next = nil
		for _, x := range l.execs {
			x.replaced = 0 // every executor is here: its losses are old ones
			l.run.tasks = append(l.run.tasks, &task{id: x.task, exec: x.id})
		}
		if l.run.spec.runTimeout > 0 {
			l.do(actTimer{"run", l.run.spec.runTimeout})
		}
	}
	r := l.run
	r.state, r.echoes = runPreparing, nil
	r.attempt++
	for _, t := range r.tasks {
		*t = task{id: t.id, exec: t.exec, restarts: t.restarts}
	}
	r.index()
	l.count.unprepared = 0
	for _, x := range l.execs {
		if x.left {
			t := r.task(x.task)
			r.setTask(t, func() { t.state, t.exit = taskExited, &clusterpb.Exited{Code: -1, Reason: "executor lost: " + x.why} })
			continue
		}
		x.port = 0
		l.count.unprepared++
		l.do(actSend{x.id, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_Prepare{
			Prepare: &clusterpb.Prepare{Run: r.spec.id, Attempt: int32(r.attempt)},
		}}})
	}
	l.do(actRunChanged{})
}

func (l *lifecycle) prepared(e evPrepared) {
	r := l.run
	x := l.exec(e.exec)
	if r == nil || x == nil || x.left || r.state != runPreparing || e.run != r.spec.id || e.attempt != r.attempt {
		return
	}
	if e.err != "" {
		l.outcome("failed", &clusterpb.Failure{
			Kind: "engine", Task: x.task.String(), Host: x.host, ExitCode: 1,
			Summary: fmt.Sprintf("%s on %s could not hold a port: %s", x.task, x.host, e.err), Remedy: "%tfcluster reset, then start again",
		}, 0)
		return
	}
	if x.port == 0 && e.port != 0 {
		l.count.unprepared--
	}
	x.port = e.port
	if l.count.unprepared > 0 {
		return
	}
	addresses := map[TaskID]string{}
	for _, x := range l.execs {
		addresses[x.task] = HostPort(x.address, x.port)
	}
	spec, err := NewSpec(addresses)
	if err != nil { // roles are validated before a reservation
		l.outcome("failed", &clusterpb.Failure{Kind: "engine", Summary: err.Error(), ExitCode: 1}, 0)
		return
	}
	r.cluster, r.state = spec, runLaunching
	l.launchDue()
	if r.spec.stepTimeout > 0 {
		r.stacks = false
		l.do(actTimer{"step", r.spec.stepTimeout})
	}
	l.do(actRunChanged{})
}

// loneRestart keeps the attempts of a task that is launched again alone apart from
// those of the gang.
const loneRestart = 1000

func (l *lifecycle) launch(x *executor, fresh bool) {
	r := l.run
	t := r.task(x.task)
	t.attempt = r.attempt + loneRestart*t.restarts
	r.setTask(t, func() { t.state, t.exit, t.entered, t.joinedServer = taskLaunching, nil, false, false })
	t.asked, t.signaled, t.leaving = false, false, false
	l.setBusy(x, true)
	l.do(actLaunch{exec: x.id, task: x.task, attempt: t.attempt, spec: r.cluster, fresh: fresh})
}

// allEntered is the run's entry once every task that was launched is in its program;
// those that wait for others' ends are not awaited.
func (l *lifecycle) allEntered() {
	r := l.run
	if r.launching() || (r.state != runLaunching && r.state != runRunning) {
		return
	}
	l.do(actTimer{"enter", 0})
	if r.state == runLaunching {
		r.state = runRunning
		l.do(actRunChanged{})
	}
	if !r.entered {
		r.entered = true
		l.do(actRunEntered{})
	}
	l.checkDone()
}

func (l *lifecycle) runTimer(name string) {
	if name == "enter" && l.next != nil && !l.active() {
		l.startFailed(&clusterpb.Failure{
			Kind: "timeout", ExitCode: 124, Summary: fmt.Sprintf("could not begin within %s: %s", l.limits.enter, l.missing()),
			Remedy: "%tfcluster reset frees what hangs and replaces what was lost",
		})
		return
	}
	r := l.run
	if r == nil {
		return
	}
	switch name {
	case "settle":
		l.verdict()
	case "enter":
		if r.awaitsExecutors() && !r.stopping && l.leaveSidecars() {
			l.do(actTimer{"enter", l.limits.enter})
			l.advance()
			return
		}
		if r.state.open() && (r.state != runRunning || r.launching()) {
			l.outcome("failed", l.notEntered(), l.limits.failGrace)
		}
	case "step":
		switch {
		case !r.state.open() || r.stopping:
		case !r.training():
			l.do(actTimer{"step", r.spec.stepTimeout})
		case !r.stacks:
			l.askStacks()
		default:
			l.outcome("failed", l.stuck(), l.limits.failGrace)
		}
	case "run":
		if r.state.open() {
			l.outcome("failed", &clusterpb.Failure{
				Kind: "run_timeout", ExitCode: 124, Summary: fmt.Sprintf("the run was not over within %s (--run-timeout)", r.spec.runTimeout),
				Remedy: "give it more time, or take its checkpoints up with start --resume",
			}, l.limits.failGrace)
		}
	case "stop", "stop step", "stop unresponsive":
		l.stopTimer(name)
	case "ending":
		for _, x := range l.execs {
			if x.busy {
				l.lose(x, "its agent did not end the run's processes in time")
			}
		}
	default:
		if role, ok := strings.CutPrefix(name, "end "); ok {
			l.notEnded(role)
		}
	}
}

// startFailed tells that the start which waited for executors does not come about.
func (l *lifecycle) startFailed(f *clusterpb.Failure) {
	l.next = nil
	l.do(actTimer{"enter", 0})
	l.do(actStartFailed{f})
}

func (l *lifecycle) notEntered() *clusterpb.Failure {
	if l.run.awaitsExecutors() {
		return &clusterpb.Failure{
			Kind: "timeout", ExitCode: 124, Summary: fmt.Sprintf("could not be launched within %s: %s", l.limits.enter, l.missing()),
			Remedy: "%tfcluster reset replaces what was lost; start --resume goes on from the last checkpoint",
		}
	}
	return l.run.notEnteredBy(l.limits.enter)
}

// askStacks has every task write where its threads are, and leaves it a moment to.
func (l *lifecycle) askStacks() {
	r := l.run
	r.stacks = true
	for _, t := range r.tasks {
		if x := l.exec(t.exec); t.entered && t.exit == nil && x != nil && x.busy {
			l.do(actSend{x.id, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_Signal{
				Signal: &clusterpb.SignalTask{Run: r.spec.id, Task: t.id.String(), Signal: int32(syscall.SIGUSR1)},
			}}})
		}
	}
	l.do(actTimer{"step", l.limits.stacks})
}

// stuck names who to look at when no step went on: a stopped process first.
func (l *lifecycle) stuck() *clusterpb.Failure {
	f := &clusterpb.Failure{
		Kind: "step_timeout", ExitCode: 124, Remedy: "%tfcluster logs shows where each task is; start --resume goes on from the last checkpoint",
		Summary: fmt.Sprintf("no step for %s (--step-timeout)", l.run.spec.stepTimeout),
	}
	for _, t := range l.run.tasks {
		if t.stopped {
			f.Task, f.Summary = t.id.String(), fmt.Sprintf("%s: %s is stopped (a SIGSTOP, or a debugger)", f.Summary, t.id)
			break
		}
	}
	return f
}

package lifecycle

import (
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// RunSpec describes a run that a client starts.
type RunSpec struct {
	ID      int32
	Options *clusterpb.RunOptions
}

// RunState is the state of a run.
type RunState int

// States of a run. The outcome is open in states before RunFinished.
const (
	RunWaiting   RunState = iota // until every executor is ready and free
	RunPreparing                 // agents are allocating ports
	RunLaunching                 // not every task has entered its program
	RunRunning
	RunRestarting // all tasks are being ended, to be launched again
	RunFinished
	RunFailed
	RunStopped
)

// Open reports whether the outcome of a run in this state is still unknown.
func (s RunState) Open() bool { return s < RunFinished }

func (s RunState) String() string {
	return [...]string{
		"starting", "starting", "starting", "running", "restarting", cluster.RunFinished, cluster.RunFailed,
		cluster.RunStopped,
	}[s]
}

// Run is a run from its start to its end. It is kept for status until the next one starts.
type Run struct {
	Spec    RunSpec
	State   RunState
	Attempt int
	restarts
	Tasks    []*Task
	byID     map[cluster.TaskID]*Task
	count    map[string]*taskCounts // by role
	cluster  cluster.Spec
	Failure  *clusterpb.Failure
	entered  bool // every task of the first attempt has entered its program
	Stopping bool
	stop     *stopPlan // set while the run is being stopped with a grace period
	stacks   bool      // no step within the step timeout: stacks were requested
	over     bool      // training is over; an evaluator may still evaluate the last checkpoint
	undecided
}

// TaskState is the state of a task in a run.
type TaskState int

// States of a task, in order.
const (
	TaskWaiting TaskState = iota
	TaskLaunching
	TaskRunning
	TaskExited
	TaskEnded // ended by us
)

func (s TaskState) String() string {
	return [...]string{"waiting", "launching", "running", "exited", "ended"}[s]
}

// Task is a task of the active or last run.
type Task struct {
	ID           cluster.TaskID
	exec         cluster.ExecutorID
	State        TaskState
	entered      bool
	JoinedServer bool // it is in tf.distribute.Server.join()
	Restarts     int
	Attempt      int // the run's attempt, plus LoneRestart for each time it was restarted alone
	Exit         *clusterpb.Exited
	Echo         bool
	Stopped      bool   // its process is in state T
	asked        bool   // we asked it to end
	signaled     bool   // by SIGTERM or SIGKILL
	leaving      bool   // the stop request has reached its program
	Awaits       string // while it waits: the role that must start or end first
}

func (l *Machine) stepRun(e Event) {
	switch e := e.(type) {
	case StartRequested:
		l.next = &e.Spec
		l.do(SetTimer{"enter", l.limits.enter})
		l.do(RunChanged{})
		for _, x := range l.execs {
			if x.givenUp() {
				l.startFailed(l.givenUpFailure(x))
				return
			}
		}
		l.advance()
	case PortPrepared:
		l.prepared(e)
	case ProgramEntered:
		if t := l.OpenTask(e.Run, e.Task); t != nil && t.State == TaskLaunching {
			l.run.setTask(t, func() { t.State, t.entered = TaskRunning, true })
			if l.run.stop != nil {
				l.run.stop.seen = [stopScans]int{}
			}
			l.Executor(t.exec).inRun.unknown = 0
			l.Executor(t.exec).loss.memory = 0
			l.do(RunChanged{})
			l.launchDue()
			l.allEntered()
		}
	case ServerJoined:
		if t := l.OpenTask(e.Run, e.Task); t != nil {
			l.run.setTask(t, func() { t.JoinedServer = true })
			l.launchDue()
			l.checkDone()
		}
	case ProgramExited:
		l.exited(e)
	case FilesSettled:
		l.settled(e)
	case FeedFailed:
		if r := l.run; r != nil && r.Spec.ID == e.Run && r.State.Open() && !r.Stopping {
			l.closeRun("failed", e.Failure, l.limits.failGrace)
		}
	case UsageReported:
		if x := l.Executor(e.Exec); x != nil {
			defer l.answered(x) // after its tasks are known
			if _, runs := e.Stopped[x.Task]; runs {
				x.inRun.unknown = 0 // its launch was in progress when its agent reconnected
			}
			if l.run != nil {
				l.run.task(x.Task).Stopped = e.Stopped[x.Task]
			}
		}
	case StepMoved:
		if r := l.run; r != nil && r.State.Open() && !r.Stopping {
			l.awaitStep(r)
		}
	case StopRequested:
		l.stop(e)
	case StepAnswered:
		l.stepAnswered(e)
	case StopReached:
		if t := l.OpenTask(e.Run, e.Task); t != nil && e.Attempt == t.Attempt {
			t.leaving = true
		}
	}
}

// OpenTask returns a task of a run, or nil if that is not the active or last run.
func (l *Machine) OpenTask(run int32, id cluster.TaskID) *Task {
	if l.run == nil || l.run.Spec.ID != run {
		return nil
	}
	return l.run.task(id)
}

// advance begins the waiting start, or continues a restart, as soon as every executor is ready
// and free.
func (l *Machine) advance() {
	if l.state != Ready {
		return
	}
	restart := l.run != nil && l.run.awaitsExecutors()
	if !restart && l.next == nil {
		return
	}
	if !restart && l.Active() {
		return
	}
	if l.count.skipped == 0 && l.count.unready+l.count.busy > 0 {
		return
	}
	for _, x := range l.execs {
		l.setSkipped(x, x.inRun.skipped && restart && x.State != ExecutorReady)
		if !x.inRun.skipped && (x.State != ExecutorReady || x.Busy) {
			return
		}
	}
	if restart && !l.filesSettled() {
		return
	}
	if !restart {
		l.run = &Run{Spec: *l.next}
		l.next = nil
		for _, x := range l.execs {
			x.replaced = 0 // all executors are present: earlier losses no longer count
			l.run.Tasks = append(l.run.Tasks, &Task{ID: x.Task, exec: x.ID})
		}
		if l.run.Spec.Options.RunTimeout() > 0 {
			l.do(SetTimer{"run", l.run.Spec.Options.RunTimeout()})
		}
	}
	r := l.run
	r.State, r.undecided = RunPreparing, undecided{}
	r.Attempt++
	for _, t := range r.Tasks {
		*t = Task{ID: t.ID, exec: t.exec, Restarts: t.Restarts}
	}
	r.index()
	l.count.unprepared = 0
	for _, x := range l.execs {
		if x.inRun.skipped {
			t := r.task(x.Task)
			r.setTask(t, func() { t.State, t.Exit = TaskExited, &clusterpb.Exited{Code: -1, Reason: "executor lost: " + x.Why} })
			continue
		}
		x.Port = 0
		l.count.unprepared++
		l.do(SendInstruction{x.ID, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_Prepare{
			Prepare: &clusterpb.Prepare{Run: r.Spec.ID, Attempt: int32(r.Attempt)},
		}}})
	}
	l.do(RunChanged{})
}

func (l *Machine) prepared(e PortPrepared) {
	r := l.run
	x := l.Executor(e.Exec)
	if r == nil || x == nil || x.inRun.skipped || r.State != RunPreparing || e.Run != r.Spec.ID || e.Attempt != r.Attempt {
		return
	}
	if e.Err != "" {
		l.closeRun("failed", &clusterpb.Failure{
			Kind: "engine", Task: x.Task.String(), Host: x.Host, ExitCode: 1,
			Summary: fmt.Sprintf("%s on %s could not hold a port: %s", x.Task, x.Host, e.Err),
			Remedy:  "see the limit of open files (ulimit -n) and the used ports of that host; %tfcluster start runs again",
		}, 0)
		return
	}
	if x.Port == 0 && e.Port != 0 {
		l.count.unprepared--
	}
	x.Port = e.Port
	if l.count.unprepared > 0 {
		return
	}
	addresses := map[cluster.TaskID]string{}
	for _, x := range l.execs {
		addresses[x.Task] = cluster.HostPort(x.agent.address, x.Port)
	}
	spec, err := cluster.NewSpec(addresses)
	if err != nil { // unreachable: roles are validated before a reservation
		l.closeRun("failed", &clusterpb.Failure{Kind: "engine", Summary: err.Error(), ExitCode: 1}, 0)
		return
	}
	r.cluster, r.State = spec, RunLaunching
	l.launchDue()
	l.awaitStep(r)
	l.do(RunChanged{})
}

// awaitStep begins the step timeout, if the run has one, anew.
func (l *Machine) awaitStep(r *Run) {
	if limit := r.Spec.Options.StepTimeout(); limit > 0 {
		r.stacks = false
		l.do(SetTimer{"step", limit})
	}
}

func (l *Machine) launch(x *Executor) {
	r := l.run
	t := r.task(x.Task)
	t.Attempt = r.Attempt + LoneRestart*t.Restarts
	r.setTask(t, func() { t.State, t.Exit, t.entered, t.JoinedServer = TaskLaunching, nil, false, false })
	t.asked, t.signaled, t.leaving = false, false, false
	l.setBusy(x, true)
	l.do(LaunchTask{Exec: x.ID, Task: x.Task, Attempt: t.Attempt, Spec: r.cluster})
}

// allEntered reports RunEntered once every launched task is in its program. Tasks that wait for
// another role to end do not count.
func (l *Machine) allEntered() {
	r := l.run
	if r.launching() || (r.State != RunLaunching && r.State != RunRunning) {
		return
	}
	l.do(SetTimer{"enter", 0})
	if r.State == RunLaunching {
		r.State = RunRunning
		l.do(RunChanged{})
	}
	if !r.entered {
		r.entered = true
		l.do(RunEntered{})
	}
	l.checkDone()
}

func (l *Machine) runTimer(name string) {
	if name == "enter" && l.next != nil && !l.Active() {
		l.startFailed(&clusterpb.Failure{
			Kind: "timeout", ExitCode: 124,
			Summary: fmt.Sprintf("the run could not begin within %s: %s", l.limits.enter, l.Missing()),
			Remedy:  "%tfcluster reset ends processes that hang and replaces lost executors",
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
		if r.awaitsExecutors() && !r.Stopping && l.skipSidecars() {
			l.do(SetTimer{"enter", l.limits.enter})
			l.advance()
			return
		}
		if r.State.Open() && (r.State != RunRunning || r.launching()) {
			l.closeRun("failed", l.notEnteredFailure(), l.limits.failGrace)
		}
	case "step":
		switch {
		case !r.State.Open() || r.Stopping:
		case !r.training():
			l.do(SetTimer{"step", r.Spec.Options.StepTimeout()})
		case !r.stacks:
			l.askStacks()
		default:
			l.closeRun("failed", l.stepTimeoutFailure(), l.limits.failGrace)
		}
	case "run":
		if r.State.Open() {
			l.closeRun("failed", &clusterpb.Failure{
				Kind: "run_timeout", ExitCode: 124,
				Summary: fmt.Sprintf("the run did not end within %s (--run-timeout)", r.Spec.Options.RunTimeout()),
				Remedy:  "raise --run-timeout; " + resumes,
			}, l.limits.failGrace)
		}
	case "stop", "stop step", "stop unresponsive":
		l.stopTimer(name)
	case "ending":
		for _, x := range l.execs {
			switch {
			case !x.Busy:
			case x.agent.silent >= l.limits.quiet:
				l.loseSilent(x)
			default:
				l.lose(x, cluster.LostByEngine, "its agent did not end the run's processes in time")
			}
		}
	default:
		if role, ok := strings.CutPrefix(name, "end "); ok {
			l.endTimeout(role)
		}
	}
}

// startFailed fails the start that waits for executors.
func (l *Machine) startFailed(f *clusterpb.Failure) {
	l.next = nil
	l.do(SetTimer{"enter", 0})
	l.do(StartFailed{f})
}

// askStacks has the stacks of every task appended to its lines, and sets the timer that then fails
// the run.
func (l *Machine) askStacks() {
	r := l.run
	r.stacks = true
	for _, t := range r.Tasks {
		if x := l.Executor(t.exec); t.entered && t.Exit == nil && x != nil && x.Busy {
			l.do(SendInstruction{x.ID, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_TakeSnapshot{
				TakeSnapshot: &clusterpb.TakeSnapshot{Run: r.Spec.ID, ToLog: true, TimeoutMillis: l.limits.stacks.Milliseconds()},
			}}})
		}
	}
	l.do(SetTimer{"step", l.limits.stacks})
}

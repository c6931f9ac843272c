package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/agent/tasklog"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

const (
	sigKill = int(unix.SIGKILL)
	sigTerm = int(unix.SIGTERM)
)

// run is the state of one run on this executor. Its fields are guarded by the agent's mu.
type run struct {
	id      int32
	attempt int32
	port    *heldPort
	ready   *clusterpb.Prepared // the answer to the attempt's Prepare; nil before it is sent
	tasks   []*task
	events  []*clusterpb.TaskEvent // repeated to a coordinator after a reconnection
}

// handle implements handler.
func (a *Agent) handle(ctx context.Context, i *clusterpb.Instruction) error {
	switch i := i.GetInstruction().(type) {
	case *clusterpb.Instruction_Welcome:
		return a.welcome(ctx, i.Welcome)
	case *clusterpb.Instruction_Prepare:
		a.python.Retry(ctx)
		a.prepareRun(ctx, i.Prepare)
	case *clusterpb.Instruction_Launch:
		a.start(ctx, i.Launch)
	case *clusterpb.Instruction_EndRun:
		end := a.endingOf(i.EndRun)
		a.work.Go(func() { a.endRun(ctx, i.EndRun, end) })
	case *clusterpb.Instruction_Barrier:
		released := map[string]any{"op": "barrier_released", "name": i.Barrier.GetName(), "error": i.Barrier.GetError()}
		for _, t := range a.tasksOf(i.Barrier.GetRun()) {
			a.work.Go(func() { t.sendControl(released) })
		}
	case *clusterpb.Instruction_TrainingOver:
		a.trainingOver(ctx, i.TrainingOver.GetRun())
	case *clusterpb.Instruction_AskStep:
		for _, t := range a.tasksOf(i.AskStep.GetRun()) {
			t.askStep(i.AskStep.GetRound())
		}
	case *clusterpb.Instruction_ActAtStep: // synchronously: their order matters
		for _, t := range a.tasksOf(i.ActAtStep.GetRun()) {
			t.actAtStep(i.ActAtStep)
		}
	case *clusterpb.Instruction_TakeSnapshot:
		for _, t := range latest(a.tasksOf(i.TakeSnapshot.GetRun())) {
			a.work.Go(func() { a.takeSnapshot(ctx, t, i.TakeSnapshot) })
		}
	case *clusterpb.Instruction_Probe:
		a.heartbeat()
	case *clusterpb.Instruction_Release:
		a.release(i.Release.GetReason())
		return errReleased
	}
	return nil
}

func (a *Agent) welcome(ctx context.Context, w *clusterpb.Welcome) error {
	if w.GetRefused() != "" {
		a.log.Error("the cluster's driver refused this agent", "reason", w.GetRefused())
		err := fmt.Errorf("the cluster's driver refused executor %s: %s", a.cfg.GetIdentity().GetExecutorId(), w.GetRefused())
		a.cancel(err)
		return err
	}
	a.mu.Lock()
	a.driver.apply(w)
	a.mu.Unlock()
	a.warm(ctx, w.GetWarmUp())
	return nil
}

// warm keeps the requested Python warm; nil changes nothing.
func (a *Agent) warm(ctx context.Context, want *clusterpb.WarmUp) {
	if want == nil {
		return
	}
	if a.cfg.GetPython() != "" && want.GetEnvironment() == nil { // an environment has its own interpreter
		want.Python = a.cfg.GetPython()
	}
	want.Python = cmp.Or(want.GetPython(), "python3")
	a.python.Warm(ctx, want)
}

// prepareRun answers with the port of a run's attempt: the one that the agent has held since no run has one,
// or a new one.
func (a *Agent) prepareRun(ctx context.Context, p *clusterpb.Prepare) {
	reply := &clusterpb.Prepared{Run: p.GetRun(), Attempt: p.GetAttempt()}
	a.logs.Prune()
	a.disk.blobs.prune()
	a.mu.Lock()
	port, err := a.port, error(nil)
	if a.port = nil; port == nil {
		port, err = holdPort()
	}
	if err != nil {
		reply.Error = err.Error()
	} else {
		reply.Ports = []int32{port.port}
	}
	r := a.runs[p.GetRun()]
	if r == nil {
		r = &run{id: p.GetRun()}
		a.runs[r.id] = r
	}
	r.port.release()
	r.attempt, r.port, r.ready = p.GetAttempt(), port, nil
	a.mu.Unlock()
	if a.disk.files == nil {
		a.prepared(reply)
		return
	}
	a.work.Go(func() { // after the previous attempt's checkpoints have been sent
		a.disk.files.settle(ctx, p.GetRun())
		a.prepared(reply)
	})
}

// prepared answers the run's last Prepare, unless the run has ended.
func (a *Agent) prepared(reply *clusterpb.Prepared) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.runs[reply.GetRun()]
	if r == nil || r.attempt != reply.GetAttempt() {
		return // ended, or prepared again
	}
	r.ready = reply
	a.link.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Prepared{Prepared: reply}})
}

// start starts a task, unless the same launch has started before.
func (a *Agent) start(ctx context.Context, l *clusterpb.Launch) {
	starting, cancel := context.WithCancel(ctx)
	t := &task{launch: l, emit: a.report, done: make(chan struct{}), cancel: cancel}
	t.ending.hurried, t.output.task = make(chan struct{}), l.GetTask()
	t.output.nccl.changed = func(c *clusterpb.NCCLChoice) {
		t.emit(t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Nccl{Nccl: c}}))
	}
	t.id = fmt.Sprintf("%s/%s/run%d.%d/%s", a.cfg.GetIdentity().GetCluster(), a.self.incarnation, l.GetRun(),
		l.GetAttempt(), l.GetTask())
	t.arrive = func(name string) {
		a.link.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Barrier{Barrier: &clusterpb.BarrierArrived{
			Run: l.GetRun(), Attempt: l.GetAttempt(), Task: l.GetTask(), Name: name,
		}}})
	}
	t.services.feed.start = func() (service, error) { return a.openFeed(ctx, l) }
	t.services.group.start = func() (service, error) { return a.openGroup(ctx, t, l) }
	t.stacks = t.newSampler()
	t.copies = func(m controlMessage) { a.work.Go(func() { a.copyHDFS(starting, t, m) }) }
	a.mu.Lock()
	r := a.runs[l.GetRun()]
	if r == nil {
		r = &run{id: l.GetRun(), attempt: l.GetAttempt()}
		a.runs[r.id] = r
	}
	if slices.ContainsFunc(r.tasks, func(old *task) bool {
		return old.launch.GetAttempt() == l.GetAttempt() && old.launch.GetTask() == l.GetTask()
	}) {
		a.mu.Unlock()
		cancel()
		return // a repeated instruction
	}
	if a.disk.files != nil {
		t.launch, t.files = a.disk.files.launch(ctx, l)
	}
	t.output.log = a.logs.Open(tasklog.Key{Run: l.GetRun(), Attempt: l.GetAttempt(), Task: l.GetTask()})
	r.tasks = append(r.tasks, t)
	a.mu.Unlock()
	a.work.Go(func() {
		defer cancel()
		t.run(func(files [3]*os.File) (*interpreter.Process, error) { return a.spawn(starting, t, files) })
	})
}

// spawnTries is how many zygotes may die while they fork one task.
const spawnTries = 3

// spawn fetches a task's files and forks it, waiting for Python to be warm.
func (a *Agent) spawn(ctx context.Context, t *task, files [3]*os.File) (*interpreter.Process, error) {
	if t.files != nil {
		if err := t.files.fetchCheckpoints(ctx); err != nil {
			return nil, err
		}
	}
	request, err := a.prepare(ctx, t)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		z, want, err := a.python.Current(ctx)
		if err != nil {
			return nil, err
		}
		request.Base = a.python.Environment(want)
		request.Fresh = interpreter.NeedsFresh(request.Env, a.python.Imported(want))
		p, err := z.Spawn(ctx, request, files)
		if errors.Is(err, interpreter.ErrZygoteGone) && ctx.Err() == nil && try < spawnTries {
			continue // with the next zygote
		}
		if err == nil {
			a.sendManifest(t, request)
		}
		return p, err
	}
}

// report sends a task's event, and keeps it for the next greeting if it must be repeated.
func (a *Agent) report(e *clusterpb.TaskEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.runs[e.GetRun()]
	if r == nil {
		return
	}
	r.events = remember(r.events, e)
	a.link.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Task{Task: e}})
}

// greeting implements handler: it opens a stream with Hello and all events of the current runs.
func (a *Agent) greeting(open func([]*clusterpb.AgentMessage)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := []*clusterpb.AgentMessage{{Message: &clusterpb.AgentMessage_Hello{Hello: a.hello()}}}
	for _, r := range a.runs {
		if r.ready != nil {
			first = append(first, &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Prepared{Prepared: r.ready}})
		}
		for _, e := range r.events {
			first = append(first, &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Task{Task: e}})
		}
	}
	if a.disk.files != nil {
		a.disk.files.mu.Lock()
		defer a.disk.files.mu.Unlock()
		first[0].GetHello().Unsent = a.disk.files.unsent()
		first = append(first, a.disk.files.sentMessages()...)
	}
	open(first)
}

// trainingOver tells the tasks that only read checkpoints, once they have the last one.
func (a *Agent) trainingOver(ctx context.Context, id int32) {
	for _, t := range a.tasksOf(id) {
		a.work.Go(func() {
			if t.files != nil && t.files.readsCheckpoints() {
				if err := t.files.pull(ctx); err != nil {
					t.note(fmt.Sprintf("the last checkpoints could not be fetched from the driver, "+
						"so it ends with the ones that it has: %v", clusterpb.Plain(err)), true)
				}
			}
			t.sendControl(map[string]any{"op": "training_over"})
		})
	}
}

// tasks returns all tasks. Caller holds mu.
func (a *Agent) tasks() []*task {
	var all []*task
	for _, r := range a.runs {
		all = append(all, r.tasks...)
	}
	return all
}

// tasksOf returns a run's tasks; those of every run if id is 0.
func (a *Agent) tasksOf(id int32) []*task {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == 0 {
		return a.tasks()
	}
	if r := a.runs[id]; r != nil {
		return slices.Clone(r.tasks)
	}
	return nil
}

// needsRenewal returns whether the zygote could not fork this task and must be replaced.
func (t *task) needsRenewal() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.proc.stale
}

// pid returns the task's process ID while it runs, otherwise 0.
func (t *task) pid() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if closed(t.done) || t.proc.running == nil {
		return 0
	}
	return t.proc.running.PID
}

package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/agent/snapshot"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/jsonlines"
)

// How long a task's pipes may stay open after its exit: before the exit is reported, before its
// remaining processes are killed, and before the pipes are closed.
const (
	settleTail  = 300 * time.Millisecond
	settlePipes = 2 * time.Second
	settleKill  = time.Second
)

// deliverQuiet is how long a task's end waits for its files without a note.
const deliverQuiet = 5 * time.Second

// task is one program on this executor, from its launch to its last line.
type task struct {
	launch *clusterpb.Launch
	id     string // unique for the zygote
	emit   func(*clusterpb.TaskEvent)
	arrive func(barrier string)
	copies func(controlMessage) // answers ctx.local_copy
	done   chan struct{}        // closed when all its processes and threads here have ended
	cancel func()               // cancels a start before there is a process, and copies
	files  *taskFiles           // nil where the driver's disk is shared
	output taskOutput
	disk   taskDisk
	ending taskEnding

	services taskServices
	stacks   *snapshot.Sampler

	mu   sync.Mutex
	proc taskProcess // guarded by mu
}

// taskDisk is a task's files. Only run uses it.
type taskDisk struct {
	blobs  []*os.File // of the program
	folder string     // the task's own working directory; ""
}

// taskProcess is a task's process and the requests about it. It is guarded by the task's mu.
type taskProcess struct {
	running *interpreter.Process // nil before the fork
	control *jsonlines.Writer    // to the program; nil: the program takes no messages
	killed  bool                 // SIGKILL was requested before there was a process
	stale   bool                 // the zygote could not fork it: a new zygote is needed
}

// taskEnding is the reason and the error of a task's end.
type taskEnding struct {
	// hurried is closed when the task has been ordered to end: its exit is then reported at once.
	hurried chan struct{}

	mu sync.Mutex
	// guarded by mu
	hurry  bool   // hurried is closed
	reason string // why this agent ended it without an instruction
	failed failure
}

// ask records that the task is to end, and a reason of this agent's.
func (e *taskEnding) ask(atOnce bool, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if atOnce && !e.hurry {
		e.hurry = true
		close(e.hurried)
	}
	e.reason = cmp.Or(e.reason, reason)
}

func (e *taskEnding) why() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reason
}

func (e *taskEnding) fail(f failure) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed = f
}

// failure returns the exception that ended the program, as its runner reported it.
func (e *taskEnding) failure() failure {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed
}

// spawner forks a prepared task.
type spawner func(files [3]*os.File) (*interpreter.Process, error)

// run starts the task, waits for its end and reports it.
func (t *task) run(spawn spawner) {
	defer close(t.done)
	defer t.output.log.End()
	if t.files != nil {
		defer t.files.processGone() // also if the task never began
	}
	defer func() {
		for _, f := range t.disk.blobs {
			f.Close()
		}
		t.removeFolder()
	}()
	pipes, err := openPipes()
	if err != nil {
		t.exited(interpreter.ExitStatus{Code: -1}, false, fmt.Sprintf("cannot be started: %v", clusterpb.Plain(err)))
		return
	}
	defer pipes.close()
	p, err := spawn(pipes.taskEnds)
	pipes.closeTaskEnds()
	if err != nil && t.wasKilled() {
		t.exited(interpreter.ExitStatus{Code: -1, Signal: int32(unix.SIGKILL)}, false, "")
		return
	}
	if err != nil {
		t.exited(interpreter.ExitStatus{Code: -1}, false, fmt.Sprintf("cannot be started: %v", clusterpb.Plain(err)))
		return
	}
	memory := openOOMCounter(p.PID)
	before := memory.read()
	t.began(p, pipes)
	drained := make(chan struct{})
	go func() {
		t.output.pumps.Wait()
		close(drained)
	}()
	status, reason := t.wait(p)
	t.stacks.Close()
	t.services.programEnded()
	waitFor(drained, settleTail)
	t.deliver(status)
	t.output.open = !closed(drained)
	t.exited(status, status.Signal == int32(unix.SIGKILL) && memory.read() > before, reason)
	waitFor(drained, settlePipes)
	t.finish(p)
	waitFor(drained, settleKill)
	pipes.close()
	<-drained
}

// began reports the process and starts reading its output.
func (t *task) began(p *interpreter.Process, pipes *taskPipes) {
	t.mu.Lock()
	t.proc.running, t.proc.control, t.proc.stale = p, jsonlines.NewWriter(pipes.control, controlTimeout), p.Fresh != ""
	killed := t.proc.killed
	t.mu.Unlock()
	t.emit(
		t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Started{Started: &clusterpb.Started{Pid: int32(p.PID)}}}))
	if p.Fresh != "" {
		t.note(p.Fresh+": this task started a new Python", true)
	}
	if t.launch.GetProgram().GetKind() == clusterpb.Program_COMMAND {
		t.emit(t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Entered{Entered: &clusterpb.Entered{}}}))
	}
	if killed {
		_ = p.Signal(int(unix.SIGKILL))
	}
	t.output.pumps.Go(func() { t.output.pump(pipes.stdout, clusterpb.Line_STDOUT) })
	t.output.pumps.Go(func() { t.output.pump(pipes.stderr, clusterpb.Line_STDERR) })
	t.output.pumps.Go(func() {
		readControl(pipes.control, t.handleControl)
		t.mu.Lock()
		t.proc.control = nil
		t.mu.Unlock()
	})
}

// wait returns the exit status and, if the program did not end by itself, the reason.
func (t *task) wait(p *interpreter.Process) (interpreter.ExitStatus, string) {
	var status interpreter.ExitStatus
	reason := ""
	select {
	case status = <-p.Exited:
	case <-p.Zygote.Gone:
		select {
		case status = <-p.Exited:
		default:
			status, reason = interpreter.ExitStatus{Code: -1, Signal: int32(unix.SIGKILL)}, interpreter.ErrZygoteGone.Error()
			killSession(p.PID, p.ID)
		}
	}
	return status, cmp.Or(t.ending.why(), reason)
}

// deliver waits until a task's files are at the driver, if it succeeded. A failure is reported
// at once; the next attempt waits for the files.
func (t *task) deliver(status interpreter.ExitStatus) {
	if t.files == nil {
		return
	}
	sent := t.files.processGone()
	if status.Code != 0 || status.Signal != 0 {
		return
	}
	for patience := time.After(deliverQuiet); ; {
		select {
		case <-sent:
			return
		case <-t.ending.hurried:
			return
		case <-patience:
			t.note("its program has ended; its files are still being sent to the driver", false)
		}
	}
}

// finish kills the task's remaining processes.
func (t *task) finish(p *interpreter.Process) {
	if err := p.Signal(int(unix.SIGKILL)); err != nil {
		killSession(p.PID, p.ID)
	}
}

// exited reports the task's end.
func (t *task) exited(status interpreter.ExitStatus, outOfMemory bool, reason string) {
	failed := t.ending.failure()
	t.emit(t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Exited{Exited: &clusterpb.Exited{
		Code: status.Code, Signal: status.Signal, OutOfMemory: outOfMemory, Tail: t.output.tail.lines(),
		Exception: failed.Exception, Traceback: failed.Traceback, Reason: reason,
		Lines: t.output.log.Count(), Open: t.output.open,
	}}}))
}

func (t *task) event(e *clusterpb.TaskEvent) *clusterpb.TaskEvent {
	e.Run, e.Attempt, e.Task = t.launch.GetRun(), t.launch.GetAttempt(), t.launch.GetTask()
	return e
}

func (t *task) wasKilled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.proc.killed
}

func (t *task) note(text string, warning bool) {
	t.emit(
		t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Note{Note: &clusterpb.Note{Text: text, Warning: warning}}}))
}

// signal sends a signal to the task's session. reason is recorded if this agent ends it by
// itself. A task that is still being started is killed as soon as it has a process.
func (t *task) signal(number int, reason string) {
	t.mu.Lock()
	p := t.proc.running
	ends := number == sigKill || number == sigTerm
	t.ending.ask(ends, reason)
	if p == nil && ends {
		t.proc.killed = true
		t.cancel()
	}
	t.mu.Unlock()
	if p != nil {
		_ = p.Signal(number) // if the zygote has died, so has the task
	}
}

// end ends the task: SIGTERM, grace, SIGKILL. It returns when all its processes have ended, or
// ctx ends.
func (t *task) end(ctx context.Context, grace time.Duration, reason string) {
	if grace > 0 {
		t.signal(int(unix.SIGTERM), reason)
		t.sendStop()
		if waitFor(t.done, grace) {
			return
		}
	}
	t.signal(int(unix.SIGKILL), reason)
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}

func (t *task) handleControl(m controlMessage) {
	e := &clusterpb.TaskEvent{}
	switch m.Op {
	case "entered":
		e.Event = &clusterpb.TaskEvent_Entered{Entered: &clusterpb.Entered{StartSeconds: m.Seconds}}
	case "report":
		if m.report.GetWallTime() <= 0 {
			m.report.WallTime = float64(time.Now().UnixNano()) / 1e9
		}
		e.Event = &clusterpb.TaskEvent_Report{Report: m.report}
	case "exception":
		t.ending.fail(m.failure)
		return
	case "result":
		result, err := m.result()
		if err != nil {
			t.note("its return value is lost: what its process sent of it is damaged", true)
			return
		}
		e.Event = &clusterpb.TaskEvent_Result{Result: result}
	case "barrier":
		t.arrive(m.Name)
		return
	case "copy":
		t.copies(m)
		return
	case "feed":
		t.services.feed.open(t, m.Op)
		return
	case "group":
		t.services.group.open(t, m.Op)
		return
	case "stacks_ready":
		t.stacksReady(m.Registration)
		return
	case "stacks":
		t.stacks.Answered(m.Answer)
		return
	case "note":
		e.Event = &clusterpb.TaskEvent_Note{Note: &clusterpb.Note{Text: m.Text, Warning: m.Warning}}
	case "manifest":
		part := parseManifest(m.Manifest)
		if part == nil {
			return
		}
		e.Event = &clusterpb.TaskEvent_Manifest{Manifest: part}
	case "step":
		e.Event = &clusterpb.TaskEvent_Step{Step: m.step}
	case "activity":
		e.Event = &clusterpb.TaskEvent_Activity{Activity: m.activity}
	case "stopping":
		e.Event = &clusterpb.TaskEvent_Stopping{Stopping: &clusterpb.Stopping{}}
	case "server_join":
		e.Event = &clusterpb.TaskEvent_ServerJoined{ServerJoined: &clusterpb.ServerJoined{}}
	default:
		return
	}
	t.emit(t.event(e))
}

// closed returns whether c is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitFor waits until c is closed, at most for limit, and returns whether it is.
func waitFor(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

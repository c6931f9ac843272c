package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// peerWords is how TensorFlow, and PyTorch and JAX by gloo and NCCL, say that the trouble
// is a peer's.
var peerWords = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b(UnavailableError|AbortedError|CancelledError)\b|Collective ops is aborted|tasks are unhealthy` +
		`|gloo/transport/tcp/\w+\.cc:\d+\].*Connection (closed|reset) by peer|\bncclRemoteError\b`)
})

// rejoined checks what an agent that came back still runs against what should run there.
func (l *lifecycle) rejoined(x *executor, running []*clusterpb.RunningTask) {
	if !x.busy {
		if len(running) > 0 { // left from a run this driver does not know as open
			l.do(actSend{x.id, endRun(0, 0)})
		}
		return
	}
	t := l.run.task(x.task)
	for _, had := range running {
		if had.GetRun() != l.run.spec.id || had.GetTask() != x.task.String() {
			continue
		}
		if x.missed { // the word to end it
			l.end(x, x.grace)
		}
		l.stopsAgain()
		return
	}
	// Its exit report, if there is one, comes on the new stream; without one the
	// launch was lost with the old stream.
	x.unknown = t.attempt
	l.do(actTimer{"unknown " + string(x.id), l.limits.report})
}

// unknown ends a task that its agent came back without, and did not report.
func (l *lifecycle) unknown(x *executor) {
	if x == nil || !x.busy || l.run == nil || x.unknown != l.run.task(x.task).attempt {
		return
	}
	l.taskGone(x, "its agent came back without it")
}

// taskGone is a task's end that no exit report tells.
func (l *lifecycle) taskGone(x *executor, reason string) {
	if l.run == nil || !(x.busy || l.waits(x)) {
		l.setBusy(x, false)
		return
	}
	l.exited(evExited{
		run: l.run.spec.id, attempt: l.run.task(x.task).attempt, task: x.task,
		exit: &clusterpb.Exited{Code: -1, Reason: reason, Tail: x.said},
	})
}

func (l *lifecycle) exited(e evExited) {
	r := l.run
	t := l.openTask(e.run, e.task)
	if t == nil || e.attempt != t.attempt || t.state == taskExited || t.state == taskEnded {
		return
	}
	x := l.exec(t.exec)
	l.setBusy(x, false)
	r.setTask(t, func() {
		t.exit, t.state = e.exit, taskExited
		if t.asked {
			t.state = taskEnded
		}
	})
	l.do(actRunChanged{})
	switch {
	case !r.state.open():
		t.echo = isEcho(e.exit)
		l.gone()
	case r.stopping: // also while the gang was being ended for a restart
		l.stoppedOne()
	case r.state == runRestarting:
		l.gone()
	case t.asked: // ended because training is over
		l.checkDone()
	case succeeded(e.exit):
		t.entered = true // also where it ended before its word came through
		l.launchDue()
		l.allEntered()
		l.checkDone()
	default:
		l.failed(t)
	}
}

func succeeded(x *clusterpb.Exited) bool {
	return x.GetCode() == 0 && x.GetSignal() == 0 && x.GetReason() == ""
}

// failed decides what a task's failure means. The first exit is the cause, except
// that a task which ends in TensorFlow's word about a peer waits for the verdict.
func (l *lifecycle) failed(t *task) {
	r := l.run
	if l.policy(t.id.Role).kind == Sidecar {
		l.note(true, "%s; training goes on without it", l.describe(t))
		l.launchDue()
		l.allEntered()
		l.checkDone()
		return
	}
	if len(r.tasks) > 1 && isEcho(t.exit) {
		t.echo = true
		r.echoes = append(r.echoes, t)
		if len(r.echoes) == 1 {
			for _, x := range l.execs {
				if x.busy {
					l.do(actSend{x.id, &clusterpb.Instruction{Instruction: &clusterpb.Instruction_Probe{Probe: &clusterpb.Probe{}}}})
				}
			}
			l.do(actTimer{"settle", l.limits.settle})
		}
		return
	}
	l.cause(t, l.describe(t))
}

func isEcho(x *clusterpb.Exited) bool {
	if x.GetSignal() != 0 || x.GetReason() != "" {
		return false
	}
	if x.GetException() != "" {
		return peerWords().MatchString(x.GetException())
	}
	return peerWords().MatchString(strings.Join(x.GetTail(), "\n"))
}

// verdict: half a second after an echo, a peer that is stopped or silent is the
// cause; if none is, the echo was no echo.
func (l *lifecycle) verdict() {
	r := l.run
	if !r.state.open() || len(r.echoes) == 0 {
		return
	}
	for _, t := range r.tasks {
		x := l.exec(t.exec)
		switch {
		case t.stopped && x.busy:
			l.cause(t, fmt.Sprintf("%s on %s is stopped (a SIGSTOP, or a debugger): its peers lost it", t.id, x.host))
			return
		case x.state == execSilent:
			l.cause(t, fmt.Sprintf("%s on %s is silent: %s", t.id, x.host, x.why))
			return
		}
	}
	first := r.echoes[0]
	first.echo = false
	l.cause(first, l.describe(first))
}

// cause has been found: restart what may be restarted, or close the run.
func (l *lifecycle) cause(t *task, summary string) {
	r := l.run
	l.do(actTimer{"settle", 0})
	r.echoes = nil // the verdict is in: the next echo waits for one of its own
	parameterServers := len(r.cluster[PS]) > 0
	if parameterServers && t.id.Role == Worker {
		if l.worker(t, summary) {
			return
		}
	}
	mayRestart := !parameterServers && r.restarts < r.spec.maxRestarts && r.entered
	if mayRestart {
		r.restarts++
		l.note(true, "%s; restart %d of %d: every task again on new ports, from the last checkpoint", summary, r.restarts, r.spec.maxRestarts)
		r.state, r.over = runRestarting, false // also where it fell to a stage behind the training
		for _, name := range append(l.endTimers(), "step") {
			l.do(actTimer{name, 0})
		}
		l.do(actTimer{"enter", l.limits.enter})
		l.do(actRunChanged{})
		l.endAll(l.limits.failGrace)
		l.regain()
		l.gone()
		return
	}
	l.outcome("failed", l.failure(t, summary), l.limits.failGrace)
}

// worker handles a lost worker beside parameter servers: it is launched again at its
// place while restarts are left, else the others go on without it, and it says so.
// It reports false when that worker was the last.
func (l *lifecycle) worker(t *task, summary string) bool {
	r := l.run
	x := l.exec(t.exec)
	if r.restarts < r.spec.maxRestarts && x.state == execReady {
		r.restarts++
		t.restarts++
		l.note(true, "%s; restart %d of %d: this worker alone, at its address", summary, r.restarts, r.spec.maxRestarts)
		l.launch(x, false)
		return true
	}
	others := r.count[Worker].running + r.count[Worker].launching
	if t.state == taskRunning || t.state == taskLaunching {
		others-- // this one
	}
	if others == 0 {
		return false
	}
	l.note(true, "%s; the run goes on with %d other %s", summary, others, plural(others, "worker"))
	l.do(actRunChanged{})
	l.launchDue() // nobody waits for it any more, neither who comes after it
	l.allEntered()
	return true
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// describe is a failure's one line.
func (l *lifecycle) describe(t *task) string {
	where := t.id.String()
	if x := l.exec(t.exec); x != nil && x.host != "" {
		where += " on " + x.host
	}
	e := t.exit
	switch {
	case e.GetReason() != "":
		return fmt.Sprintf("%s: %s", where, e.GetReason())
	case e.GetOutOfMemory():
		return fmt.Sprintf("%s ran out of memory and was killed by the kernel (SIGKILL; its cgroup's oom_kill rose)", where)
	case e.GetSignal() != 0:
		return fmt.Sprintf("%s was killed by signal %d (%s)", where, e.GetSignal(), signalName(e.GetSignal()))
	case e.GetException() != "":
		return fmt.Sprintf("%s failed: %s", where, firstLine(e.GetException()))
	default:
		return fmt.Sprintf("%s exited with code %d", where, e.GetCode())
	}
}

func (l *lifecycle) failure(t *task, summary string) *clusterpb.Failure {
	f := &clusterpb.Failure{Kind: "task", Summary: summary, Task: t.id.String(), ExitCode: 1}
	if x := l.exec(t.exec); x != nil {
		f.Host = x.host
	}
	f.Remedy = "mend the program and %tfcluster start again: the executors are held"
	e := t.exit
	if e == nil {
		f.Kind = "lost"
		return f
	}
	f.Signal, f.Lines, f.Exception, f.Traceback = e.GetSignal(), e.GetTail(), e.GetException(), e.GetTraceback()
	switch {
	case e.GetSignal() != 0:
		f.ExitCode = 128 + e.GetSignal()
	case e.GetCode() > 0:
		f.ExitCode = e.GetCode()
	}
	switch {
	case e.GetReason() != "":
		f.Kind = "lost"
		f.Remedy = "%tfcluster start runs again on the executors that are left or replaced; %tfcluster reset frees what hangs"
	case e.GetOutOfMemory(), strings.HasPrefix(e.GetException(), "MemoryError"):
		f.Kind = "out_of_memory"
		f.Remedy = "a smaller batch or model, or reserve with more --memory"
	}
	return f
}

func signalName(n int32) string {
	names := map[syscall.Signal]string{
		syscall.SIGKILL: "SIGKILL", syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT", syscall.SIGSEGV: "SIGSEGV", syscall.SIGABRT: "SIGABRT",
		syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGILL: "SIGILL", syscall.SIGHUP: "SIGHUP", syscall.SIGPIPE: "SIGPIPE",
		syscall.SIGQUIT: "SIGQUIT", syscall.SIGUSR1: "SIGUSR1", syscall.SIGUSR2: "SIGUSR2",
	}
	if s, ok := names[syscall.Signal(n)]; ok {
		return s
	}
	return syscall.Signal(n).String()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

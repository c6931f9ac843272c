package lifecycle

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// peerWords matches the errors by which TensorFlow, PyTorch and JAX through gloo and NCCL, collective calls
// (package groups) and feeds (package feed) report that a peer failed.
var peerWords = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`\b(UnavailableError|AbortedError|CancelledError)\b|Collective ops is aborted|tasks are unhealthy` +
			`|a collective call failed: .*(has left the group|did not arrive|does not answer|lost the connection to \S+:\d)` +
			`|the feed failed: \S+ has ended (while records were delivered|with \d+ records)` +
			`|gloo/transport/tcp/\w+\.cc:\d+\].*Connection (closed|reset) by peer|\bncclRemoteError\b`)
})

// undecided is the state of a verdict that is not given yet.
type undecided struct {
	echoes   []*Task // tasks that failed with an error about a peer, or while a peer was silent
	evidence bool    // the verdict waits for the answer of an agent
}

// rejoined compares the tasks of an agent that reconnected with the task that should run there.
func (l *Machine) rejoined(x *Executor, running []*clusterpb.RunningTask) {
	if !x.Busy {
		if len(running) > 0 { // of a run that this driver does not know as open
			l.do(SendInstruction{x.ID, endRun(0, 0)})
		}
		return
	}
	t := l.run.task(x.Task)
	for _, had := range running {
		if had.GetRun() != l.run.Spec.ID || had.GetTask() != x.Task.String() {
			continue
		}
		if x.inRun.endMissed { // the instruction to end it
			l.end(x, x.inRun.grace)
		}
		l.resumeStop()
		return
	}
	// If the task has exited, the agent reports it on the new stream. Without a report, the
	// launch was lost with the old stream.
	x.inRun.unknown = t.Attempt
	l.do(SetTimer{"unknown " + string(x.ID), l.limits.report})
}

// unknown ends a task that its agent reconnected without and has not reported in time.
func (l *Machine) unknown(x *Executor) {
	if x == nil || !x.Busy || l.run == nil || x.inRun.unknown != l.run.task(x.Task).Attempt {
		return
	}
	l.taskGone(x, "its agent reconnected, and its process is gone")
}

// taskGone handles the end of a task without an exit report.
func (l *Machine) taskGone(x *Executor, reason string) {
	if l.run == nil || !(x.Busy || l.awaitsLaunch(x)) {
		l.setBusy(x, false)
		return
	}
	l.exited(ProgramExited{
		Run: l.run.Spec.ID, Attempt: l.run.task(x.Task).Attempt, Task: x.Task,
		Exit: &clusterpb.Exited{Code: -1, Reason: reason, Tail: x.lastLines},
	})
}

func (l *Machine) exited(e ProgramExited) {
	r := l.run
	t := l.OpenTask(e.Run, e.Task)
	if t == nil || e.Attempt != t.Attempt || t.State == TaskExited || t.State == TaskEnded {
		return
	}
	x := l.Executor(t.exec)
	l.setBusy(x, false)
	r.setTask(t, func() {
		t.Exit, t.State = e.Exit, TaskExited
		if t.asked {
			t.State = TaskEnded
		}
	})
	l.do(RunChanged{})
	switch {
	case !r.State.Open():
		t.Echo = isEcho(e.Exit)
		l.checkProcessesGone()
	case r.Stopping: // also while the tasks were being ended for a restart
		l.stopTaskExited()
	case r.State == RunRestarting:
		l.checkProcessesGone()
	case t.asked: // ended because training is over
		l.checkDone()
	case succeeded(e.Exit):
		t.entered = true // it may have exited before ProgramEntered arrived
		l.launchDue()
		l.allEntered()
		l.checkDone()
	default:
		l.taskFailed(t)
	}
}

func succeeded(x *clusterpb.Exited) bool {
	return x.GetCode() == 0 && x.GetSignal() == 0 && x.GetReason() == ""
}

// taskFailed decides the consequence of a task's failure. The first exit is the root cause; but if it ends with an
// error about a peer, or while a peer is silent, the decision waits for limits.settle.
func (l *Machine) taskFailed(t *Task) {
	r := l.run
	if l.policy(t.ID.Role).kind == cluster.Sidecar {
		l.note(true, "%s; training continues without it", l.describe(t))
		l.launchDue()
		l.allEntered()
		l.checkDone()
		return
	}
	if len(r.Tasks) > 1 && (isEcho(t.Exit) || endedItself(t.Exit) && l.silentPeer(t) != nil) {
		t.Echo = true
		r.echoes = append(r.echoes, t)
		if len(r.echoes) == 1 {
			l.probe()
			l.do(SetTimer{"settle", l.limits.settle})
		}
		return
	}
	l.rootCause(t, l.describe(t))
}

// endedItself reports whether a task has ended by its own code: by an exit code, an exception or abort, with which the
// coordination services of TensorFlow and JAX end a process when a peer is lost.
func endedItself(x *clusterpb.Exited) bool {
	return x.GetReason() == "" && (x.GetSignal() == 0 || syscall.Signal(x.GetSignal()) == syscall.SIGABRT)
}

func isEcho(x *clusterpb.Exited) bool {
	if !endedItself(x) {
		return false
	}
	if x.GetException() != "" {
		return peerWords().MatchString(x.GetException())
	}
	return peerWords().MatchString(strings.Join(x.GetTail(), "\n"))
}

// verdict finds the root cause, limits.settle after a task failed with an error about a peer: a peer that is stopped or
// silent, or else the task itself. While a peer has not answered the probe, it waits until the peer's agent answers,
// or is silent for limits.quiet.
func (l *Machine) verdict() {
	r := l.run
	if !r.State.Open() || r.Stopping || len(r.echoes) == 0 {
		return
	}
	for _, t := range r.Tasks {
		x := l.Executor(t.exec)
		switch {
		case t.Stopped && x.Busy:
			l.rootCause(t,
				fmt.Sprintf("%s on %s is stopped (a SIGSTOP, or a debugger): its peers lost the connection to it", t.ID, x.Host))
			return
		case x.State == ExecutorSilent && x.agent.sudden && x.Busy:
			l.rootCause(t, fmt.Sprintf("%s on %s is silent: %s", t.ID, x.Host, x.Why))
			return
		}
	}
	if x := l.silentPeer(r.echoes[0]); x != nil {
		l.loseSilent(x)
		return
	}
	if r.evidence = slices.ContainsFunc(l.execs, l.unanswered); r.evidence {
		return
	}
	first := r.echoes[0]
	first.Echo = false
	l.rootCause(first, l.describe(first))
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// describe returns a failed task's failure in one line.
func (l *Machine) describe(t *Task) string {
	where := t.ID.String()
	if x := l.Executor(t.exec); x != nil && x.Host != "" {
		where += " on " + x.Host
	}
	e := t.Exit
	switch {
	case e.GetReason() != "" && e.GetOutOfMemory(): // the kernel may kill more than the task
		return fmt.Sprintf("%s: %s: the kernel killed processes because memory ran out (its cgroup's oom_kill rose)", where,
			e.GetReason())
	case e.GetReason() != "":
		return fmt.Sprintf("%s: %s", where, e.GetReason())
	case e.GetOutOfMemory():
		return fmt.Sprintf("%s ran out of memory and was killed by the kernel (SIGKILL; its cgroup's oom_kill rose)", where)
	case e.GetSignal() != 0:
		s := syscall.Signal(e.GetSignal())
		return fmt.Sprintf("%s was killed by signal %d (%s)", where, s, cmp.Or(unix.SignalName(s), s.String()))
	case e.GetException() != "":
		return fmt.Sprintf("%s failed: %s", where, firstLine(e.GetException()))
	default:
		return fmt.Sprintf("%s exited with code %d", where, e.GetCode())
	}
}

func (l *Machine) failure(t *Task, summary string) *clusterpb.Failure {
	f := &clusterpb.Failure{Summary: summary, Task: t.ID.String(), ExitCode: 1}
	if x := l.Executor(t.exec); x != nil {
		f.Host = x.Host
	}
	f.Kind, f.Remedy = taskRemedy(t, l.Executor(t.exec))
	e := t.Exit
	f.Signal, f.Lines, f.Exception, f.Traceback = e.GetSignal(), e.GetTail(), e.GetException(), e.GetTraceback()
	x := l.Executor(t.exec)
	switch {
	case x != nil && x.State == ExecutorLost && x.loss.by == cluster.LostByKill:
		f.ExitCode = 137
	case e.GetSignal() != 0:
		f.ExitCode = 128 + e.GetSignal()
	case e.GetCode() > 0:
		f.ExitCode = e.GetCode()
	}
	return f
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func (l *Machine) notEnteredFailure() *clusterpb.Failure {
	if l.run.awaitsExecutors() {
		return &clusterpb.Failure{
			Kind: "timeout", ExitCode: 124,
			Summary: fmt.Sprintf("the tasks could not be launched within %s: %s", l.limits.enter, l.Missing()),
			Remedy:  "%tfcluster reset replaces lost executors; " + resumes,
		}
	}
	return l.run.notEnteredBy(l.limits.enter)
}

// stepTimeoutFailure returns the failure of a run that made no step in time. It names a stopped
// process if there is one.
func (l *Machine) stepTimeoutFailure() *clusterpb.Failure {
	f := &clusterpb.Failure{
		Kind: "step_timeout", ExitCode: 124, Remedy: "%tfcluster logs shows where each task is; " + resumes,
		Summary: fmt.Sprintf("no step for %s (--step-timeout)", l.run.Spec.Options.StepTimeout()),
	}
	for _, t := range l.run.Tasks {
		if t.Stopped {
			f.Task, f.Summary = t.ID.String(), fmt.Sprintf("%s: %s is stopped (a SIGSTOP, or a debugger)", f.Summary, t.ID)
			break
		}
	}
	return f
}

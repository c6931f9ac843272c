package lifecycle

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// A remedy consists of clauses that "; " separates. tfcluster run releases the executors, so it leaves out the clauses
// that name a command of %tfcluster.

// resumes is the end of a remedy: only the folder of the run shows whether it has checkpoints.
const resumes = "if the program saved checkpoints, start --resume continues from the last one"

// moreMemory is the remedy for a task or an executor that used more memory than it has.
const moreMemory = "use a smaller batch or model, or reserve with more --memory"

// reserveAgain is the remedy for a reservation that failed.
const reserveAgain = "correct what the reason names, then %tfcluster reserve again; " +
	"%tfcluster doctor checks this machine and the engine"

// losses says how an executor that is given up was lost, for texts that begin with its name.
func (x *Executor) losses() string {
	what := "was lost"
	if x.loss.by == cluster.LostByError {
		what = "failed"
	}
	if x.replaced == 0 {
		return fmt.Sprintf("%s%s: %s", what, x.loss.on, x.Why)
	}
	return fmt.Sprintf("%s %d times, the last time%s: %s", what, x.replaced+1, x.loss.on, x.Why)
}

// quoted returns the last lines of the executor's lost agent, without a last one that Why ends with.
func (x *Executor) quoted() []string {
	if last := len(x.lastLines) - 1; last >= 0 && strings.HasSuffix(x.Why, strings.TrimSpace(x.lastLines[last])) {
		return x.lastLines[:last]
	}
	return x.lastLines
}

// correct returns what to do about the cause of the executor's loss.
func (x *Executor) correct() string {
	return cmp.Or(errtext.RemedyForLimit(x.Why, x.loss.on), fmt.Sprintf("correct%s what the reason names", x.loss.on))
}

// givenUpFailure returns the failure of a reservation, a start or a run that needs an executor which is given up.
func (l *Machine) givenUpFailure(x *Executor) *clusterpb.Failure {
	f := &clusterpb.Failure{
		Kind: "engine", Task: x.Task.String(), Host: x.Host, ExitCode: 75, Lines: x.quoted(),
		Summary: fmt.Sprintf("executor %s for %s %s", x.ID, x.Task, x.losses()),
	}
	reserving := l.state <= Reserving
	switch {
	case x.loss.by == cluster.LostByMemory && reserving:
		f.Remedy = "reserve with more --memory"
	case x.loss.by == cluster.LostByMemory:
		f.Remedy = "%tfcluster reserve --replace with more --memory"
	case x.loss.by == cluster.LostByError && reserving:
		f.Remedy = x.correct() + "; then %tfcluster reserve again"
	case x.loss.by == cluster.LostByError:
		f.Remedy = x.correct() + "; then %tfcluster reset requests it again, or reserve --replace takes other options"
	case reserving:
		f.Remedy = reserveAgain
	default:
		f.Remedy = "%tfcluster reset requests it again"
	}
	return f
}

// taskRemedy returns the kind of a failed task's failure, and its remedy. exit is nil for a task that has not ended: it
// is stopped, or its executor is silent.
func taskRemedy(t *Task, x *Executor) (kind, next string) {
	e := t.Exit
	on := ""
	if x != nil && x.Host != "" {
		on = " on " + x.Host
	}
	lost := e.GetReason() != "" && x != nil && x.State == ExecutorLost
	reason, notStarted := strings.CutPrefix(e.GetReason(), "cannot be started: ")
	switch {
	case e == nil && t.Stopped:
		return "lost", fmt.Sprintf("find out what stopped it%s; %%tfcluster start runs again", on)
	case e.GetOutOfMemory(), strings.HasPrefix(e.GetException(), "MemoryError"), lost && x.loss.by == cluster.LostByMemory:
		return "out_of_memory", moreMemory
	case notStarted:
		return "lost", startRemedy(reason, on)
	case lost && x.loss.by == cluster.LostByError:
		return "lost", fmt.Sprintf(
			"correct%s what the reason names; %%tfcluster start runs again on the remaining and replaced executors", on)
	case e == nil, e.GetReason() != "":
		return "lost", "%tfcluster start runs again on the remaining and replaced executors; " +
			"%tfcluster reset ends processes that hang"
	}
	switch syscall.Signal(e.GetSignal()) {
	case 0:
		return "task", exceptionRemedy(e, on)
	case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS:
		return "task", fmt.Sprintf("native code failed; %%tfcluster logs --task %s shows Python's stack; "+
			"correct the program or its packages; %%tfcluster start runs it again", t.ID)
	}
	return "task", fmt.Sprintf("find out what sent the signal%s (dmesg shows what the kernel killed); "+
		"%%tfcluster start runs again, with --max-restarts N also by itself", on)
}

// startRemedy returns the remedy for a task that cannot be started for a reason of its agent's.
func startRemedy(reason, on string) string {
	if strings.Contains(reason, "on the driver's host") {
		on = ""
	}
	if limit := errtext.RemedyForLimit(reason, on); limit != "" {
		return limitRemedy(limit, "")
	}
	for _, r := range [...]struct{ part, next string }{
		{
			"from the driver", "if it fails again, check the disk or file server from which the driver's host reads it, " +
				"and the network between that host and the task's; %tfcluster start runs again",
		},
		{": the archive ", "correct the archive on the notebook's host; %tfcluster start sends it again, and runs again"},
		{
			"--files ", "if it fails again, correct on that host what the reason names, or reserve --replace with other " +
				"--files; %tfcluster start runs again",
		},
		{"--working-dir ", "%tfcluster start with another --working-dir"},
		{
			"make a folder of the run below --dir", "give this user access to --dir on every executor's host, " +
				"or reserve with another --dir; %tfcluster start runs again",
		},
	} {
		if strings.Contains(reason, r.part) {
			return r.next
		}
	}
	return "if it fails again, correct on that host what the reason names, or reserve with another --python or --venv; " +
		"%tfcluster start runs again"
}

// exceptionRemedy returns the remedy for a task that ended by itself.
func exceptionRemedy(e *clusterpb.Exited, on string) string {
	limit := errtext.RemedyForLimit(e.GetException(), on)
	has := func(part string) bool { return strings.Contains(e.GetException(), part) }
	switch {
	case has("Collective ops must be configured at program startup"):
		return "create tf.distribute.MultiWorkerMirroredStrategy() before TensorFlow computes anything: before data sets, " +
			"layers and models are created"
	case has(errtext.Report):
		return "report it as the error says; %tfcluster start runs again: the executors stay reserved"
	case has("has lost the connection to the cluster's driver"):
		return "the driver ended, or the network between that executor's host and the driver's broke: " +
			"the driver's last lines are in driver.log below ~/.local/state/tfcluster on its host; " +
			"%tfcluster start runs again: the executors stay reserved"
	case isEcho(e) && has(" lost the connection to "):
		return "check the network between the hosts of the tasks that it names, and %tfcluster logs of them; " +
			"%tfcluster start runs again: the executors stay reserved"
	case isEcho(e) && has("a collective call failed"):
		return "%tfcluster logs shows what the tasks that it names did; %tfcluster start runs again: " +
			"the executors stay reserved"
	case has("reserve with --"): // the package tfcluster names an option
		return "do what the error says (reserve --replace takes other options); then %tfcluster start again"
	case limit != "":
		return limitRemedy(limit, ", or change the program")
	case has("a collective call: open the sockets"), has("ctx.local_copy: "):
		return fmt.Sprintf("correct%s what the error names; then %%tfcluster start again: the executors stay reserved", on)
	}
	return "fix the program and run %tfcluster start again: the executors stay reserved"
}

// environmentRemedy returns the remedy for an environment that an executor cannot use.
func environmentRemedy(cause string) string {
	if errtext.RemedyForLimit(cause, "") != "" || strings.Contains(cause, "TFCLUSTER_CACHE") {
		return ReserveRemedy(cause)
	}
	return "do what the reason says, or reserve with another --venv"
}

// ReserveRemedy returns the remedy for a reservation that failed by a cause of the engine's or of a host's.
func ReserveRemedy(cause string) string {
	if step := errtext.Remedy(cause); step != "" {
		return step + "; then %tfcluster reserve again"
	}
	return reserveAgain
}

// limitRemedy returns the remedy for a task that a limit of its host ended, from the step for that limit;
// or is another step.
func limitRemedy(step, or string) string {
	if errtext.KeptFromStart(step) {
		return step + " and then %tfcluster reserve --replace (executors keep the limit that they began with)" + or +
			"; then run %tfcluster start again"
	}
	return step + or + "; then run %tfcluster start again: the executors stay reserved"
}

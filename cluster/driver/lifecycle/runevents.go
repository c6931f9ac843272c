package lifecycle

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Events of a run.
type (
	// StartRequested asks for a run.
	StartRequested struct{ Spec RunSpec }
	// PortPrepared reports that an agent holds a port for its task, or why it does not.
	PortPrepared struct {
		Exec    cluster.ExecutorID
		Attempt int
		Run     int32
		Port    int32
		Err     string
	}
	// ProgramEntered reports that a task has called the user's program.
	ProgramEntered struct {
		Run  int32
		Task cluster.TaskID
	}
	// FilesSettled reports that the files of an attempt which ended are ready for the next one.
	FilesSettled struct {
		Run     int32
		Attempt int
	}
	// ServerJoined reports that a task has called tf.distribute.Server.join and only serves
	// others from now on.
	ServerJoined struct {
		Run  int32
		Task cluster.TaskID
	}
	// ProgramExited reports that a task's process has ended.
	ProgramExited struct {
		Run     int32
		Attempt int
		Task    cluster.TaskID
		Exit    *clusterpb.Exited
	}
	// FeedFailed reports that a run cannot be fed any more, and why.
	FeedFailed struct {
		Run     int32
		Failure *clusterpb.Failure
	}
	// UsageReported has the live tasks of an executor; the value is true if a signal has
	// stopped the process.
	UsageReported struct {
		Exec    cluster.ExecutorID
		Stopped map[cluster.TaskID]bool
	}
	// StepMoved reports that a training task has reached another step.
	StepMoved struct{}
	// StopRequested asks to end the run. Tasks have the grace period to save their work.
	StopRequested struct {
		Grace  time.Duration
		Reason string
	}
	// StepAnswered is a task's answer to the instruction AskStep or ActAtStep.
	StepAnswered struct {
		Run     int32
		Attempt int
		Task    cluster.TaskID
		Step    *clusterpb.Step
	}
	// StopReached reports that the stop request has reached a task's program.
	StopReached struct {
		Run     int32
		Attempt int
		Task    cluster.TaskID
	}
)

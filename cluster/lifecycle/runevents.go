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
	// PortPrepared says that an agent holds a port for its task, or why it cannot.
	PortPrepared struct {
		Exec    cluster.ExecutorID
		Attempt int
		Run     int32
		Port    int32
		Err     string
	}
	// ProgramEntered says that a task runs the user's program.
	ProgramEntered struct {
		Run  int32
		Task cluster.TaskID
	}
	// ServerJoined says that a task only serves from now on (tf.distribute.Server.join).
	ServerJoined struct {
		Run  int32
		Task cluster.TaskID
	}
	// ProgramExited says that a task's process has ended.
	ProgramExited struct {
		Run     int32
		Attempt int
		Task    cluster.TaskID
		Exit    *clusterpb.Exited
	}
	// UsageReported has which tasks of an executor live, and whether a signal has stopped them.
	UsageReported struct {
		Exec    cluster.ExecutorID
		Stopped map[cluster.TaskID]bool
	}
	// StepMoved says that a task that trains has gone on to another step.
	StepMoved struct{}
	// StopRequested asks to end the run. The tasks have the grace to save their work.
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
	// StopReached says that a task's program has been told of the stop.
	StopReached struct {
		Run     int32
		Attempt int
		Task    cluster.TaskID
	}
)

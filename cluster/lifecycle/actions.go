package lifecycle

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Action is what Step returns: one of the types of this file.
type Action any

// Actions on the engine and on agents.
type (
	// ReplaceExecutor asks the engine for another executor in the place of one.
	ReplaceExecutor struct{ Exec cluster.ExecutorID }
	// SendInstruction sends an instruction to an agent, if it is connected.
	SendInstruction struct {
		Exec cluster.ExecutorID
		What *clusterpb.Instruction
	}
	// LaunchTask launches a task at an executor.
	LaunchTask struct {
		Exec    cluster.ExecutorID
		Task    cluster.TaskID
		Attempt int
		Spec    cluster.Spec
		fresh   bool // the first launch of this attempt, not that of a task restarted alone
	}
	// Release gives everything back to the engine.
	Release struct{ Reason string }
	// SetTimer starts a timer in the place of the one with that name; after 0 there is none.
	SetTimer struct {
		Name  string
		After time.Duration
	}
)

// Actions for clients.
type (
	// ReservationReady reports that every executor is ready.
	ReservationReady struct{}
	// ReservationFailed reports that the cluster does not come about.
	ReservationFailed struct{ Failure *clusterpb.Failure }
	// Note shows a line to people.
	Note struct {
		Text    string
		Warning bool
	}
	// RunChanged reports that the state of the run or of a task has changed.
	RunChanged struct{}
	// RunEntered reports that every task runs the user's program.
	RunEntered struct{}
	// RunOver reports that the outcome of the run is decided.
	RunOver struct{}
	// RunGone reports that no process of the run is left.
	RunGone struct{}
	// StartFailed reports that a start which waited for executors does not come about.
	StartFailed struct{ Failure *clusterpb.Failure }
)

package lifecycle

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Action is one of the types of this file. Step returns them.
type Action any

// Actions on the engine and on agents.
type (
	// ReplaceExecutor requests a replacement for an executor from the engine.
	// Elsewhere asks for another host: its own does not answer, which the engine may not know yet.
	ReplaceExecutor struct {
		Exec      cluster.ExecutorID
		Elsewhere bool
	}
	// SendInstruction sends an instruction to an agent, if it is connected.
	SendInstruction struct {
		Exec cluster.ExecutorID
		What *clusterpb.Instruction
	}
	// LaunchTask launches a task on an executor.
	LaunchTask struct {
		Exec    cluster.ExecutorID
		Task    cluster.TaskID
		Attempt int
		Spec    cluster.Spec
	}
	// SettleFiles makes the files of an attempt that ended ready for the next one. FilesSettled reports the end.
	SettleFiles struct {
		Run     int32
		Attempt int
	}
	// Release returns everything to the engine.
	Release struct{ Reason string }
	// SetTimer starts a timer and replaces the one with the same name; After 0 cancels it.
	SetTimer struct {
		Name  string
		After time.Duration
	}
)

// Actions for clients.
type (
	// ReservationReady reports that every executor is ready.
	ReservationReady struct{}
	// ReservationFailed reports that the reservation failed.
	ReservationFailed struct{ Failure *clusterpb.Failure }
	// Note is a line for users.
	Note struct {
		Text    string
		Warning bool
	}
	// RunChanged reports that the state of the run or of a task has changed.
	RunChanged struct{}
	// RunEntered reports that every task has entered the user's program.
	RunEntered struct{}
	// RunOver reports that the outcome of the run is decided.
	RunOver struct{}
	// RunGone reports that all processes of a run have ended. The run has its final state; the
	// next one may have started.
	RunGone struct{ Run *Run }
	// StartFailed reports that a start that waited for executors failed.
	StartFailed struct{ Failure *clusterpb.Failure }
)

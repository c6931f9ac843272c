package cluster

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// What the lifecycle takes and gives: events go in, actions come out.
type (
	event  any
	action any
)

// Events of executors, clients and the engine.
type (
	evPending struct {
		exec ExecutorID
		why  string
	}
	evAnew struct { // an earlier driver's executor is gone, and asked for again
		exec    ExecutorID
		attempt int
	}
	evGranted struct {
		exec    ExecutorID
		attempt int
		host    string
		kept    bool // by an earlier driver
	}
	evReturned struct { // what there was went back to the engine, which is asked again
		attempts map[ExecutorID]int
		why      string
	}
	evLost struct { // the engine says so
		exec    ExecutorID
		attempt int
		cause   string
	}
	evSaid struct { // what the agent wrote last of an executor that is about to be told as lost
		exec    ExecutorID
		attempt int
		lines   []string
	}
	evJoined struct {
		exec        ExecutorID
		attempt     int
		incarnation string
		host        string
		address     string
		warm        bool
		tasks       []*clusterpb.RunningTask
	}
	evWarmed   struct{ exec ExecutorID }
	evFetching struct { // what an executor needs before it is warm
		exec ExecutorID
		what string
	}
	evUnfit        struct{ cause string } // an executor cannot have the environment that was given
	evDisconnected struct {
		exec        ExecutorID
		incarnation string
		sudden      bool // it spoke a moment ago: its process ended rather than the network
	}
	evRecovered struct{} // the engine said what it keeps for this driver, which took over; those are to come back
	evTimer     struct{ name string }
	evClients   struct{ n int }
	evOver      struct{ cause string }               // the engine has nothing more for this cluster
	evRefused   struct{ failure *clusterpb.Failure } // the engine grants nothing
	evReleased  struct{}                             // everything was given back
	evReset     struct{ hard bool }
	evRenew     struct{} // somebody reserves what is there already
	evShutdown  struct{ reason string }
)

// Events of a run.
type (
	evStart    struct{ spec runSpec }
	evPrepared struct {
		exec    ExecutorID
		attempt int
		run     int32
		port    int32
		err     string
	}
	evEntered struct {
		run  int32
		task TaskID
	}
	evServerJoin struct {
		run  int32
		task TaskID
	}
	evExited struct {
		run     int32
		attempt int
		task    TaskID
		exit    *clusterpb.Exited
	}
	evUsage struct { // of the active run's tasks, from a heartbeat
		exec    ExecutorID
		stopped map[TaskID]bool
	}
	evStep struct{} // a trainer's step went on
	evStop struct {
		grace  time.Duration
		reason string
	}
	evStepAnswer struct { // a task's answer to AskStep or ActAtStep
		run     int32
		attempt int
		task    TaskID
		step    *clusterpb.Step
	}
	evStopping struct { // the request to stop has reached a task's program
		run     int32
		attempt int
		task    TaskID
	}
)

// Actions.
type (
	actReplace struct{ exec ExecutorID }
	actSend    struct {
		exec ExecutorID
		what *clusterpb.Instruction
	}
	actTimer struct { // replaces a timer of the same name; 0 cancels
		name  string
		after time.Duration
	}
	actReady         struct{}
	actReserveFailed struct{ failure *clusterpb.Failure }
	actNote          struct {
		text    string
		warning bool
	}
	actRelease struct{ reason string }
	actLaunch  struct {
		exec    ExecutorID
		task    TaskID
		attempt int
		spec    Spec
		fresh   bool // a first launch of this attempt, not a task restarted alone
	}
	actRunChanged struct{} // state or tasks: followers want to know
	actRunEntered struct{}
	actRunOver    struct{} // the outcome is decided
	actRunGone    struct{} // and no process of it is left
	// actStartFailed: the start that waited for executors does not come about.
	actStartFailed struct{ failure *clusterpb.Failure }
)

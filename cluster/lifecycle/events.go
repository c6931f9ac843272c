package lifecycle

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// What the lifecycle takes and gives: events go in, actions come out.
type (
	Event  any
	Action any
)

// Events of executors, clients and the engine.
type (
	Pending struct {
		Exec cluster.ExecutorID
		Why  string
	}
	Reallocated struct { // an earlier driver's executor is gone, and asked for again
		Exec    cluster.ExecutorID
		Attempt int
	}
	Granted struct {
		Exec    cluster.ExecutorID
		Attempt int
		Host    string
		Kept    bool // by an earlier driver
	}
	BackedOff struct { // what there was went back to the engine, which is asked again
		Attempts map[cluster.ExecutorID]int
		Why      string
	}
	EngineLost struct { // the engine says so
		Exec    cluster.ExecutorID
		Attempt int
		Cause   string
	}
	LastLines struct { // what the agent wrote last of an executor that is about to be told as lost
		Exec    cluster.ExecutorID
		Attempt int
		Lines   []string
	}
	AgentJoined struct {
		Exec        cluster.ExecutorID
		Attempt     int
		Incarnation string
		Host        string
		Address     string
		Warm        bool
		Tasks       []*clusterpb.RunningTask
	}
	AgentWarm     struct{ Exec cluster.ExecutorID }
	AgentFetching struct { // what an executor needs before it is warm
		Exec cluster.ExecutorID
		What string
	}
	EnvironmentUnfit  struct{ Cause string } // an executor cannot have the environment that was given
	AgentDisconnected struct {
		Exec        cluster.ExecutorID
		Incarnation string
		Sudden      bool // it spoke a moment ago: its process ended rather than the network
	}
	Recovered         struct{} // the engine said what it keeps for this driver, which took over; those are to come back
	TimerFired        struct{ Name string }
	ClientsChanged    struct{ Count int }
	EngineEnded       struct{ Cause string }               // the engine has nothing more for this cluster
	Refused           struct{ Failure *clusterpb.Failure } // the engine grants nothing
	Released          struct{}                             // everything was given back
	ResetRequested    struct{ Hard bool }
	RenewRequested    struct{} // somebody reserves what is there already
	ShutdownRequested struct{ Reason string }
)

// Events of a run.
type (
	StartRequested struct{ Spec RunSpec }
	PortPrepared   struct {
		Exec    cluster.ExecutorID
		Attempt int
		Run     int32
		Port    int32
		Err     string
	}
	ProgramEntered struct {
		Run  int32
		Task cluster.TaskID
	}
	ServerJoined struct {
		Run  int32
		Task cluster.TaskID
	}
	ProgramExited struct {
		Run     int32
		Attempt int
		Task    cluster.TaskID
		Exit    *clusterpb.Exited
	}
	UsageReported struct { // of the active run's tasks, from a heartbeat
		Exec    cluster.ExecutorID
		Stopped map[cluster.TaskID]bool
	}
	StepMoved     struct{} // a trainer's step went on
	StopRequested struct {
		Grace  time.Duration
		Reason string
	}
	StepAnswered struct { // a task's answer to AskStep or ActAtStep
		Run     int32
		Attempt int
		Task    cluster.TaskID
		Step    *clusterpb.Step
	}
	StopReached struct { // the request to stop has reached a task's program
		Run     int32
		Attempt int
		Task    cluster.TaskID
	}
)

// Actions.
type (
	ReplaceExecutor struct{ Exec cluster.ExecutorID }
	SendInstruction struct {
		Exec cluster.ExecutorID
		What *clusterpb.Instruction
	}
	SetTimer struct { // replaces a timer of the same name; 0 cancels
		Name  string
		After time.Duration
	}
	ReservationReady  struct{}
	ReservationFailed struct{ Failure *clusterpb.Failure }
	Note              struct {
		Text    string
		Warning bool
	}
	Release    struct{ Reason string }
	LaunchTask struct {
		Exec    cluster.ExecutorID
		Task    cluster.TaskID
		Attempt int
		Spec    cluster.Spec
		fresh   bool // a first launch of this attempt, not a task restarted alone
	}
	RunChanged struct{} // state or tasks: followers want to know
	RunEntered struct{}
	RunOver    struct{} // the outcome is decided
	RunGone    struct{} // and no process of it is left
	// StartFailed: the start that waited for executors does not come about.
	StartFailed struct{ Failure *clusterpb.Failure }
)

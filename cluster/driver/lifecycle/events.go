package lifecycle

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Event is the input of Step: an event of the engine (cluster.Event), or one of the types of this file
// and of runevents.go.
type Event any

// Answers of the engine to the driver's calls.
type (
	// Recovered reports, after a takeover, that the engine has listed the executors it keeps
	// for this driver. Their agents will reconnect.
	Recovered struct{}
	// Refused reports that the engine grants nothing.
	Refused struct{ Failure *clusterpb.Failure }
	// Released reports that the engine has taken everything back.
	Released struct{}
)

// Events of agents.
type (
	// AgentJoined reports that an agent has connected. An agent that reconnects has the same
	// Incarnation.
	AgentJoined struct {
		Exec        cluster.ExecutorID
		Attempt     int
		Incarnation string
		Host        string
		Address     string
		Warm        bool
		Tasks       []*clusterpb.RunningTask
	}
	// AgentFetching reports what an agent is downloading before its Python is warm.
	AgentFetching struct {
		Exec cluster.ExecutorID
		What string
	}
	// AgentWarm reports that an executor's Python has imported the modules that tasks need.
	AgentWarm struct{ Exec cluster.ExecutorID }
	// EnvironmentUnfit reports that executors cannot use the requested environment.
	EnvironmentUnfit struct{ Cause string }
	// AgentLost reports that the driver gives an agent up: it is refused, it leaves, or it cannot be replaced.
	AgentLost struct {
		Exec    cluster.ExecutorID
		Attempt int
		By      cluster.LostBy
		Cause   string
	}
	// AgentSilent reports every second for how long an agent that should send heartbeats has sent no message, and once,
	// by 0, that it has sent one again.
	AgentSilent struct {
		Exec cluster.ExecutorID
		For  time.Duration
	}
	// AgentDisconnected reports that an agent's connection broke.
	AgentDisconnected struct {
		Exec        cluster.ExecutorID
		Incarnation string
		Sudden      bool // it sent a message just before: more likely its process ended than the network failed
	}
)

// Events of clients, and timers.
type (
	// TimerFired reports that a timer of SetTimer has expired.
	TimerFired struct{ Name string }
	// ClientsChanged has the number of clients that hold the cluster.
	ClientsChanged struct{ Count int }
	// ResetRequested asks to end the run and to replace lost executors; Hard replaces all.
	ResetRequested struct{ Hard bool }
	// RenewRequested asks to request again the executors of a ready cluster that were given up.
	RenewRequested struct{}
	// ShutdownRequested asks to end the cluster.
	ShutdownRequested struct{ Reason string }
)

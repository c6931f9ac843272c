package lifecycle

import (
	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Event is the input of Step: one of the types of this file and of runevents.go.
type Event any

// Events of the engine.
type (
	// Pending reports what an executor waits for at the engine.
	Pending struct {
		Exec cluster.ExecutorID
		Why  string
	}
	// Granted reports that the engine allocated an executor.
	Granted struct {
		Exec      cluster.ExecutorID
		Attempt   int
		Host      string
		Recovered bool // it was allocated to an earlier driver; its agent will reconnect
	}
	// Reallocated reports that an executor of an earlier driver is gone and that the engine was
	// asked for a replacement.
	Reallocated struct {
		Exec    cluster.ExecutorID
		Attempt int
	}
	// BackedOff reports that a partly filled reservation returned its executors to the engine
	// and has requested them again.
	BackedOff struct {
		Attempts map[cluster.ExecutorID]int // the attempt numbers of the new requests
		Why      string
	}
	// LastLines has the last lines that the agent of an executor wrote. EngineLost follows it.
	LastLines struct {
		Exec    cluster.ExecutorID
		Attempt int
		Lines   []string
	}
	// EngineLost reports that the engine lost an executor.
	EngineLost struct {
		Exec    cluster.ExecutorID
		Attempt int
		By      cluster.LostBy
		Cause   string
	}
	// Recovered reports, after a takeover, that the engine has listed the executors it keeps
	// for this driver. Their agents will reconnect.
	Recovered struct{}
	// EngineEnded reports that the engine has ended the allocation and will grant no more
	// executors.
	EngineEnded struct{ Cause string }
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

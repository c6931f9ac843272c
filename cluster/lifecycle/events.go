package lifecycle

import (
	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Event is what Step takes: one of the types of this file and of runevents.go.
type Event any

// Events of the engine.
type (
	// Pending says what an executor waits for at the engine.
	Pending struct {
		Exec cluster.ExecutorID
		Why  string
	}
	// Granted says that the engine gave an executor.
	Granted struct {
		Exec    cluster.ExecutorID
		Attempt int
		Host    string
		Kept    bool // an earlier driver got it; its agent is to come back
	}
	// Reallocated says that an earlier driver's executor is gone, and that the engine is asked
	// for another in its place.
	Reallocated struct {
		Exec    cluster.ExecutorID
		Attempt int
	}
	// BackedOff says that a partly filled reservation returned its executors to the engine, and
	// asks for them again.
	BackedOff struct {
		Attempts map[cluster.ExecutorID]int // by which the executors are asked for now
		Why      string
	}
	// LastLines has what the agent of an executor wrote last. The event EngineLost follows.
	LastLines struct {
		Exec    cluster.ExecutorID
		Attempt int
		Lines   []string
	}
	// EngineLost says that the engine lost an executor.
	EngineLost struct {
		Exec    cluster.ExecutorID
		Attempt int
		Cause   string
	}
	// Recovered says that the engine has told which executors it keeps for this driver, which
	// took the cluster over. Their agents are to come back.
	Recovered struct{}
	// EngineEnded says that the engine has ended the allocation: no executor can be had any more.
	EngineEnded struct{ Cause string }
	// Refused says that the engine grants nothing.
	Refused struct{ Failure *clusterpb.Failure }
	// Released says that the engine has taken everything back.
	Released struct{}
)

// Events of agents.
type (
	// AgentJoined says that an agent is connected. One that was connected before has the same
	// incarnation.
	AgentJoined struct {
		Exec        cluster.ExecutorID
		Attempt     int
		Incarnation string
		Host        string
		Address     string
		Warm        bool
		Tasks       []*clusterpb.RunningTask
	}
	// AgentFetching says what an agent brings over before its Python is warm.
	AgentFetching struct {
		Exec cluster.ExecutorID
		What string
	}
	// AgentWarm says that an executor's Python has imported what tasks need.
	AgentWarm struct{ Exec cluster.ExecutorID }
	// EnvironmentUnfit says that executors cannot have the environment that was given.
	EnvironmentUnfit struct{ Cause string }
	// AgentDisconnected says that an agent's connection broke.
	AgentDisconnected struct {
		Exec        cluster.ExecutorID
		Incarnation string
		Sudden      bool // it spoke a moment before: its process ended, rather than the network
	}
)

// Events of clients and of time.
type (
	// TimerFired says that the timer which SetTimer asked for has run out.
	TimerFired struct{ Name string }
	// ClientsChanged has the number of clients that hold the cluster.
	ClientsChanged struct{ Count int }
	// ResetRequested asks to end the run and to replace lost executors; Hard replaces all.
	ResetRequested struct{ Hard bool }
	// RenewRequested asks again for the executors of a ready cluster that were given up.
	RenewRequested struct{}
	// ShutdownRequested asks to end the cluster.
	ShutdownRequested struct{ Reason string }
)

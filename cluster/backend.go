package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// ExecutorID names an executor within its cluster. The backend makes it and gives
// it to the agent it starts there; a reservation is keyed by it.
type ExecutorID string

// Backend asks an engine for executors. Implementations: cluster/local,
// cluster/spark, cluster/yarn; every one passes cluster/clustertest. What else an engine can
// do it says by the interfaces of optional.go.
type Backend interface {
	// Allocate returns once the engine has accepted the request; agents then dial
	// in. An error says in one line what the engine cannot give.
	Allocate(ctx context.Context, req Request) (Allocation, error)
	// Recover takes an allocation up again from what Saved held, after a driver died. An
	// ErrEngineAway leaves it to a later driver.
	Recover(ctx context.Context, req Request, saved []byte) (Allocation, error)
}

// ErrEngineAway says that an engine does not answer. What it runs for the cluster may live.
var ErrEngineAway = errors.New("the cluster may live: %tfcluster attach asks for it again, shutdown gives it up")

// Allocation is what an engine granted; optional.go has what it may do besides. Its methods may be called from any goroutine.
type Allocation interface {
	// ID is the engine's name for it: application_…, app-…, local-4711.
	ID() string
	// Events tells what happens to executors until Release. The channel is
	// never closed.
	Events() <-chan Event
	// Replace ends what is left of an executor and asks for another in its place,
	// whose agent joins under the same ID with a higher attempt.
	Replace(ctx context.Context, id ExecutorID) error
	// Saved is what Recover needs; it holds no secret beyond what the 0600 state file may.
	Saved() []byte
	// Release gives everything back. It may be called again. status, with a line that
	// explains it, is what an engine shows that shows how an allocation ended.
	Release(ctx context.Context, status FinalStatus, diagnostics string) error
}

// FinalStatus is how what a cluster was reserved for has ended.
type FinalStatus int

// A cluster that was made for one run ends as that run does. Another has Succeeded
// wherever it was reserved, whatever its runs have come to.
const (
	Succeeded FinalStatus = iota
	Failed
	Killed // by a person or a signal
)

// Check is one thing that was looked at for a person: what it is, what was found, and
// how what is missing is had.
type Check struct {
	What, Found string
	Remedy      string // "": nothing is missing
}

// Request is what a backend must provide.
type Request struct {
	Cluster string
	// Identity is the cluster's alone, whatever others are called: what it keeps on hosts
	// and at its engine is named by it.
	Identity  string
	Executors []ExecutorRequest
	Reserve   *clusterpb.ReserveRequest
	// AgentConfig makes the configuration an agent reads on its standard input:
	// it holds a key, so it never travels in an argument or an environment.
	AgentConfig func(id ExecutorID, attempt int) (*clusterpb.AgentConfig, error)
	// Program is the tfcluster binary to run as agent.
	Program string
	// StateDir is the cluster's own folder, 0700, kept until shutdown.
	StateDir string
	// Waiting is called with what all executors wait for, as long as the engine names none of
	// them; nil: nobody wants to know.
	Waiting func(why string)
}

// ExecutorRequest is one executor: whose task it will be and what it needs.
type ExecutorRequest struct {
	ID   ExecutorID
	Task TaskID
	Each *clusterpb.Resources
}

// ExecutorRequests are the executors of a request's roles, in the order of their tasks.
func ExecutorRequests(roles []*clusterpb.Role) []ExecutorRequest {
	var execs []ExecutorRequest
	for i, t := range Tasks(roles) {
		execs = append(execs, ExecutorRequest{ID: ExecutorID(fmt.Sprint(i)), Task: t, Each: resourcesOf(roles, t.Role)})
	}
	return execs
}

func resourcesOf(roles []*clusterpb.Role, name string) *clusterpb.Resources {
	for _, r := range roles {
		if r.GetName() == name {
			return r.GetEach()
		}
	}
	return nil
}

// Event is one of Pending, Reallocated, Granted, BackedOff, StateChanged, Lost, Warning, Terminated.
type Event interface{ event() }

// Pending says in the engine's words what an executor waits for.
type Pending struct {
	Executor ExecutorID
	Why      string
}

// Reallocated says that nothing is left to take back of an earlier driver's executor, and that
// the engine is asked for this attempt in its place. An agent of it that still speaks is
// about to be ended. Recover tells it before it returns.
type Reallocated struct {
	Executor ExecutorID
	Attempt  int
}

// Granted says that the engine gave an executor and its agent is being started.
type Granted struct {
	Executor ExecutorID
	Attempt  int
	Host     string
	PID      int // of the agent, where it is known
	// Recovered is whether its agent is an earlier driver's, which is to come back.
	Recovered bool
}

// BackedOff says that a reservation that is not whole gave back to the engine what it
// held, and asks again in a while: whose attempts these are then. Agents of earlier ones
// are about to be ended. No cluster is told so that was ready with what it holds.
type BackedOff struct {
	Attempts map[ExecutorID]int
	Why      string // for the person who waits, in a line
}

// StateChanged says that what Saved gives is another though no executor is, such as the secret
// by which another driver goes on.
type StateChanged struct{}

// Lost says that an executor is gone, with the engine's reason.
type Lost struct {
	Executor  ExecutorID
	Attempt   int
	Cause     string   // one line
	LastLines []string // the last lines that its agent wrote, where the engine knows them
}

// Warning says what a person should know of the engine, in one line.
type Warning struct{ Text string }

// Terminated says that what the whole allocation lived in is gone, and no executor can be
// had any more: the cluster ends.
type Terminated struct{ Cause string }

func (Pending) event()      {}
func (Reallocated) event()  {}
func (Granted) event()      {}
func (BackedOff) event()    {}
func (StateChanged) event() {}
func (Lost) event()         {}
func (Warning) event()      {}
func (Terminated) event()   {}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// ExecutorID identifies an executor within its cluster. The backend passes it to the agent
// that it starts there.
type ExecutorID string

// Backend asks an engine for executors. Implementations: cluster/local,
// cluster/spark, cluster/yarn; each passes cluster/clustertest. A backend implements the
// interfaces of optional.go for what else its engine can do.
type Backend interface {
	// Allocate returns when the engine has accepted the request. The agents connect later.
	// An error says in one line what the engine cannot provide.
	Allocate(ctx context.Context, req Request) (Allocation, error)
	// Recover returns the allocation of an earlier driver, which died, from the bytes that
	// its Saved returned. With ErrEngineAway the state is kept, and a later driver tries again.
	Recover(ctx context.Context, req Request, saved []byte) (Allocation, error)
}

// ErrEngineAway means that the engine does not answer. The cluster's executors may still run.
var ErrEngineAway = errors.New(
	"the cluster may still run: %tfcluster attach connects to it again, %tfcluster shutdown gives it up")

// Allocation is the set of executors that an engine grants to a cluster. optional.go lists
// optional methods. All methods may be called from any goroutine.
type Allocation interface {
	// ID returns the engine's identifier: application_…, app-…, local-4711.
	ID() string
	// Events returns the channel of the executors' events until Release. It is never closed.
	Events() <-chan Event
	// Replace ends the processes of an executor and requests another executor, whose
	// agent joins with the same ID and a higher attempt.
	Replace(ctx context.Context, id ExecutorID) error
	// Saved returns the bytes for Recover. They are written to the state file, mode 0600.
	Saved() []byte
	// Release returns all executors to the engine. It may be called more than once. An engine
	// that shows a final status shows status, and diagnostics, one line, as its explanation.
	Release(ctx context.Context, status FinalStatus, diagnostics string) error
}

// FinalStatus is the outcome of a cluster, as YARN shows it for an application.
type FinalStatus int

// A cluster for one run has the outcome of that run. Any other cluster has Succeeded once it
// was ready, whatever the outcome of its runs.
const (
	Succeeded FinalStatus = iota
	Failed
	Killed // by a person or a signal
)

// Check is a line of doctor: the thing checked, the result, and how to install or repair
// what is missing.
type Check struct {
	What, Found string
	Remedy      string // "": nothing is missing
}

// Request is a request for executors to a backend.
type Request struct {
	Cluster string
	// Identity is unique to the cluster, also among clusters of the same name. It is part of
	// the names of folders on hosts and of objects at the engine.
	Identity  string
	Executors []ExecutorRequest
	Reserve   *clusterpb.ReserveRequest
	// AgentConfig returns the configuration that an agent reads from its standard input. It
	// contains a private key: it must not be an argument or an environment variable.
	AgentConfig func(id ExecutorID, attempt int) (*clusterpb.AgentConfig, error)
	// Program is the tfcluster binary to run as agent.
	Program string
	// StateDir is a folder of this cluster, mode 0700, removed after shutdown.
	StateDir string
	// Waiting is called with the reason for which all executors wait, while the engine does
	// not report it for single executors. May be nil.
	Waiting func(why string)
}

// ExecutorRequest is the request for one executor: its task and its resources.
type ExecutorRequest struct {
	ID   ExecutorID
	Task TaskID
	Each *clusterpb.Resources
}

// ExecutorRequests returns the requests for the executors of roles, in the order of their tasks.
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

// Pending is the reason for which an executor is not granted yet, as the engine words it.
type Pending struct {
	Executor ExecutorID
	Why      string
}

// Reallocated means that an executor of an earlier driver cannot be recovered, and that the
// backend has requested this attempt instead. If the earlier agent still sends messages, it is
// about to be ended. Recover sends the event before it returns.
type Reallocated struct {
	Executor ExecutorID
	Attempt  int
}

// Granted means that the engine has granted an executor, whose agent is being started.
type Granted struct {
	Executor ExecutorID
	Attempt  int
	Host     string
	PID      int // of the agent, if known
	// Recovered: an earlier driver started the agent, which is expected to join again.
	Recovered bool
}

// BackedOff means that a partially filled reservation has released its executors and will
// request them again later, with the next attempts. Agents of earlier attempts are about to be
// ended. It is never sent once the cluster has been ready.
type BackedOff struct {
	Attempts map[ExecutorID]int
	Why      string // one line, for the user
}

// StateChanged means that Saved returns other bytes although no executor has changed, for
// example after the engine has issued a new token.
type StateChanged struct{}

// HeartbeatTimeout is the default of reserve --heartbeat-timeout: an executor whose agent has sent no message for so
// long is lost.
const HeartbeatTimeout = 30 * time.Second

// LostBy says what ended an executor. What the user can do depends on it.
type LostBy int

// What ends executors.
const (
	LostByEngine LostBy = iota // the engine, its host or the network ended it, or a signal: a replacement may stay
	LostByError                // an error that Cause names: replacements end in the same way until it is corrected
	LostByMemory               // it used more memory than it was granted
	LostByHost                 // its host was lost or is silent, or the engine gave it to others (preemption)
	LostByKill                 // somebody ended the whole application or session: a user, or an administrator
)

// Lost means that an executor has ended, with the engine's reason.
type Lost struct {
	Executor  ExecutorID
	Attempt   int
	By        LostBy
	Cause     string   // one line
	LastLines []string // the last lines of its agent, if the engine has them
}

// Warning is a line about the engine for the user.
type Warning struct{ Text string }

// Terminated means that the engine has ended the whole allocation, such as an application or a
// session: no executor can be granted any more, and the cluster ends.
type Terminated struct{ Cause string }

func (Pending) event()      {}
func (Reallocated) event()  {}
func (Granted) event()      {}
func (BackedOff) event()    {}
func (StateChanged) event() {}
func (Lost) event()         {}
func (Warning) event()      {}
func (Terminated) event()   {}

// Optional interfaces of backends and allocations. The coordinator, the driver and the driver
// proxy find them by type assertions. A backend implements those that apply to its engine.
//
//	interface           of          implement it when                                              implemented by
//	RemoteEngine        Backend     executors are on other machines than the driver                spark, yarn
//	DriverLauncher      Backend     the engine can run the driver itself (--managed)               yarn
//	AgentLogs           Allocation  the log of an agent that never joined can be read              local, spark, yarn
//	ApplicationHistory  Allocation  the engine has applications and keeps the containers' logs     yarn
//	SessionSharer       Allocation  a notebook can use the engine's session beside the cluster     spark
//	NodeExcluder        Allocation  nodes on which agents fail can be excluded from requests       yarn
//	HostAvoider         Allocation  the engine may not know yet that a host does not answer        spark, yarn
//	HostLister          Allocation  executors may share a host while others have room              spark, yarn
//	AddressPublisher    Allocation  agents can look up the new address of a driver                 yarn
//
// hosted.go has the two sides of a DriverLauncher: RemoteDriver for the client that submitted
// the driver, DriverHost for the driver.

package cluster

import (
	"context"
	"io"
	"regexp"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// RemoteEngine is a Backend whose executors are on other machines than the driver.
type RemoteEngine interface {
	// Advertise returns the host name or address of this machine to which executors connect,
	// for a request without --advertise. Agents of other backends use the loopback interface.
	Advertise(ctx context.Context, r *clusterpb.ReserveRequest) (host string, err error)
	// InitialStatus returns, in a few words, what Allocate waits for.
	InitialStatus(r *clusterpb.ReserveRequest) string
	// FailureDetectionDelay returns the usual time from the end of an agent to the event
	// Lost; 0 if the engine does not detect that end or does not know its cause.
	FailureDetectionDelay() time.Duration
}

// DriverLauncher is a Backend whose engine can run the driver of a cluster: the cluster then
// does not need the machine that submitted it, and nodes need no route to that machine.
type DriverLauncher interface {
	// Submit asks the engine to run a driver for the request. The driver reads input, which
	// contains secrets. An error says in one line what the engine cannot provide.
	Submit(ctx context.Context, req Request, input []byte) (RemoteDriver, error)
	// Upload stores a file of --files or --venv for the driver's OpenArtifact, unless it is
	// stored already.
	Upload(ctx context.Context, r *clusterpb.ReserveRequest, content *clusterpb.Blob, from io.ReadSeeker) error
	// Find returns a submitted driver from the bytes that its Saved returned.
	Find(r *clusterpb.ReserveRequest, saved []byte) (RemoteDriver, error)
}

// AgentLogs is an Allocation that can read the log of an agent that never joined.
type AgentLogs interface {
	// Logs opens the log of an executor's last agent. The error wraps fs.ErrNotExist if it has had none.
	Logs(ctx context.Context, id ExecutorID) (io.ReadCloser, error)
}

// ApplicationHistory is an Allocation whose engine has applications and keeps the logs of
// their containers, also after these have ended. An allocation may be several applications, one
// after the other.
type ApplicationHistory interface {
	// Applications returns the applications of the allocation, oldest first.
	Applications() []Application
	// ContainerLogs calls emit with the lines of one log after another. heading names the log;
	// "" continues the log of the call before. A heading without lines is a remark. An error of
	// emit ends it and is returned.
	ContainerLogs(ctx context.Context, q LogQuery, emit func(heading string, lines []*clusterpb.Line) error) error
	// LogLocations returns where the logs can be read later, as JSON without secrets.
	LogLocations() []byte
}

// Application is an application of the engine, such as YARN.
type Application struct {
	ID    string    `json:"id"`
	State string    `json:"state"` // running, or how it ended
	Since time.Time `json:"since"`
}

// LogQuery selects lines of the logs that an engine keeps.
type LogQuery struct {
	Allocation string         // application_…; "": all applications of the cluster
	Task       string         // worker:1, a role, or the ID of a container; "": all
	Last       int            // lines of each log; 0 = all
	Grep       *regexp.Regexp // nil: every line
}

// SessionSharer is an Allocation in a session of the engine that a notebook can use too.
type SessionSharer interface {
	// Session returns how to connect to the session. The reply may contain a secret.
	Session(ctx context.Context) (*clusterpb.EngineSessionReply, error)
}

// NodeExcluder is an Allocation that excludes nodes on which agents fail to start.
type NodeExcluder interface {
	// AgentJoined reports that the agent of an executor's attempt has joined. If unfit is not
	// "", it is the reason why the executor cannot be used and is about to be replaced.
	AgentJoined(id ExecutorID, attempt int, unfit string)
	// ClearExclusions ends all exclusions: a node may have been repaired.
	ClearExclusions()
}

// HostAvoider is an Allocation whose engine still counts a lost host as alive, until the engine's own timeout.
type HostAvoider interface {
	// AvoidHost has the engine leave out the host of an executor, for the one that Replace requests next and for others,
	// until HostAnswers or ClearExclusions. host is its name as the executor's agent knows it. AvoidHost returns
	// after the engine's answer, or when ctx ends; where the engine cannot do it, events say what the
	// replacement waits for.
	AvoidHost(ctx context.Context, id ExecutorID, host string)
	// HostAnswers reports that an agent on a host has connected again.
	HostAnswers(host string)
}

// HostLister is an Allocation that knows the hosts on which its engine has room.
type HostLister interface {
	// OtherHosts returns the hosts, other than the one with all executors of the cluster, that have room for one more.
	// host is its name as the executors' agents know it.
	OtherHosts(ctx context.Context, host string) ([]string, error)
}

// AddressPublisher is an Allocation whose agents look up the address of the driver when they
// cannot connect to the address in their configuration.
type AddressPublisher interface {
	// PublishAddress writes the address, HOST:PORT, where agents look it up.
	PublishAddress(ctx context.Context, address string) error
}

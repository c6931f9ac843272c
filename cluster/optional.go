// Optional interfaces of a backend and of what it grants. The coordinator, the driver and
// the driver proxy look for each by a type assertion; what an engine cannot do is left out.
//
//	interface           of          implement it when                                              implemented by
//	RemoteEngine        Backend     executors are on other machines than the driver                spark, yarn
//	DriverLauncher      Backend     the engine can run the driver itself (--managed)               yarn
//	AgentLogs           Allocation  what an agent wrote that never joined can be shown             local, spark, yarn
//	ApplicationHistory  Allocation  the engine has names for people, and keeps containers' logs    yarn
//	SessionSharer       Allocation  a notebook can use the engine's session beside the cluster     spark
//	NodeExcluder        Allocation  nodes from which agents do not come can be left out            yarn
//	AddressPublisher    Allocation  agents can look up where a driver is that has moved            yarn
//
// hosted.go has what a DriverLauncher gives: RemoteDriver to whoever submitted the driver,
// DriverHost to the driver.

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
	// Advertise returns the host name or address of this machine at which executors dial
	// the driver, for a request that names none. Others' agents dial loopback.
	Advertise(ctx context.Context, r *clusterpb.ReserveRequest) (host string, err error)
	// InitialStatus says in a few words what Allocate waits for.
	InitialStatus(r *clusterpb.ReserveRequest) string
	// FailureDetectionDelay is how long after an agent's end Lost comes, as a rule; 0 where
	// the engine does not notice that end, or does not know its cause.
	FailureDetectionDelay() time.Duration
}

// DriverLauncher is a Backend whose engine can run a cluster's driver itself: the cluster
// then goes on without the machine that submitted it, and nodes need no route to that.
type DriverLauncher interface {
	// Submit asks the engine to run a driver for the request. input, which is secret,
	// is what that driver reads. An error says in one line what the engine cannot give.
	Submit(ctx context.Context, req Request, input []byte) (RemoteDriver, error)
	// Upload puts a content of --files or --venv where the driver's OpenArtifact has it,
	// unless it is there.
	Upload(ctx context.Context, r *clusterpb.ReserveRequest, content *clusterpb.Blob, from io.ReadSeeker) error
	// Find takes up what Saved held of one that was submitted.
	Find(r *clusterpb.ReserveRequest, saved []byte) (RemoteDriver, error)
}

// AgentLogs is an Allocation that can show what an agent wrote that never joined.
type AgentLogs interface {
	// Logs opens the log of an executor's last agent.
	Logs(ctx context.Context, id ExecutorID) (io.ReadCloser, error)
}

// ApplicationHistory is an Allocation whose engine has names for people of what it grants,
// and keeps what containers wrote, also those that are gone. An allocation may be several
// applications one after the other.
type ApplicationHistory interface {
	// Applications are those, oldest first.
	Applications() []Application
	// ContainerLogs calls emit in turn with lines; heading says whose they are and is ""
	// where they continue. A heading without lines is a remark. It ends with emit's error.
	ContainerLogs(ctx context.Context, q LogQuery, emit func(heading string, lines []*clusterpb.Line) error) error
	// LogLocations is what whoever reads the logs later must know; JSON without a secret.
	LogLocations() []byte
}

// Application is an allocation as its engine calls it: an application of YARN's.
type Application struct {
	ID    string    `json:"id"`
	State string    `json:"state"` // running, or how it ended
	Since time.Time `json:"since"`
}

// LogQuery selects from the logs that an engine keeps.
type LogQuery struct {
	Allocation string         // the engine's name for it: application_…; "": all that the cluster has been
	Task       string         // "" = all; worker:1, a role, or the engine's name of a container
	Last       int            // lines of each log; 0 = all
	Grep       *regexp.Regexp // nil: every line
}

// SessionSharer is an Allocation whose engine's session a notebook can use beside the
// cluster.
type SessionSharer interface {
	// Session says how; the reply may hold a secret.
	Session(ctx context.Context) (*clusterpb.EngineSessionReply, error)
}

// NodeExcluder is an Allocation that leaves out nodes from which agents do not come.
type NodeExcluder interface {
	// AgentJoined says that the agent of an executor's attempt is here. unfit is why it is of no
	// use, so that another is about to be asked for; "": it is.
	AgentJoined(id ExecutorID, attempt int, unfit string)
	// ClearExclusions has it ask for every node again: somebody may have repaired one.
	ClearExclusions()
}

// AddressPublisher is an Allocation whose agents, where they cannot dial the driver any more
// at the address that they were given, look up another.
type AddressPublisher interface {
	// PublishAddress says at which HOST:PORT they find it from now on.
	PublishAddress(ctx context.Context, address string) error
}

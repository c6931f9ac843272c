package cluster

import (
	"context"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Advertiser is a Backend that knows at which address of this machine its executors
// can dial the driver. Others' agents dial loopback.
type Advertiser interface {
	// Advertise returns a host name or address for a request that names none.
	Advertise(ctx context.Context, r *clusterpb.ReserveRequest) (host string, err error)
}

// Announcer is a Backend whose Allocate takes a while, such as one that makes a session
// of the engine's first.
type Announcer interface {
	// InitialStatus says what is awaited meanwhile, in a few words.
	InitialStatus(r *clusterpb.ReserveRequest) string
}

// SessionSharer is an Allocation whose engine's session a notebook can use beside the
// cluster, such as Spark's.
type SessionSharer interface {
	// Session says how; the reply may hold a secret.
	Session(ctx context.Context) (*clusterpb.EngineSessionReply, error)
}

// NodeExcluder is an Allocation that leaves out places from which agents do not come.
type NodeExcluder interface {
	// AgentJoined says that the agent of an executor's attempt is here. unfit is why it is of no
	// use, so that another is about to be asked for; "": it is.
	AgentJoined(id ExecutorID, attempt int, unfit string)
	// ClearExclusions has it ask for every place again: somebody may have mended what was wrong.
	ClearExclusions()
}

// AddressPublisher is an Allocation whose executors, where they cannot dial the driver any more at the
// address that they were given, look elsewhere for another.
type AddressPublisher interface {
	// PublishAddress says at which HOST:PORT they find it from now on.
	PublishAddress(ctx context.Context, address string) error
}

// Teller is a Backend whose engine notices an agent's end, and knows why.
type Teller interface {
	// FailureDetectionDelay is how long after such an end Lost comes, as a rule.
	FailureDetectionDelay() time.Duration
}

// Concluder is an Allocation whose engine shows how what it was reserved for has ended.
type Concluder interface {
	// Conclude says it, before Release. why is a line, "" where all went well.
	Conclude(how FinalStatus, why string)
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

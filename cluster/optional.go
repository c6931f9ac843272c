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
	// Announce says what is awaited meanwhile, in a few words.
	Announce(r *clusterpb.ReserveRequest) string
}

// SessionSharer is an Allocation whose engine's session a notebook can use beside the
// cluster, such as Spark's.
type SessionSharer interface {
	// Session says how; the reply may hold a secret.
	Session(ctx context.Context) (*clusterpb.EngineSessionReply, error)
}

// Chooser is an Allocation that leaves out places from which agents do not come.
type Chooser interface {
	// Came says that the agent of an executor's attempt is here. unfit is why it is of no
	// use, so that another is about to be asked for; "": it is.
	Came(id ExecutorID, attempt int, unfit string)
	// Forgive has it ask for every place again: somebody may have mended what was wrong.
	Forgive()
}

// Mover is an Allocation whose executors, where they cannot dial the driver any more at the
// address that they were given, look elsewhere for another.
type Mover interface {
	// Moved says at which HOST:PORT they find it from now on.
	Moved(ctx context.Context, address string) error
}

// Teller is a Backend whose engine notices an agent's end, and knows why.
type Teller interface {
	// TellsWithin is how long after such an end Lost comes, as a rule.
	TellsWithin() time.Duration
}

// Concluder is an Allocation whose engine shows how what it was reserved for has ended.
type Concluder interface {
	// Conclude says it, before Release. why is a line, "" where all went well.
	Conclude(how Conclusion, why string)
}

// Conclusion is how what a cluster was reserved for has ended.
type Conclusion int

// A cluster that was made for one run ends as that run does. Another has Succeeded
// wherever it was reserved, whatever its runs have come to.
const (
	Succeeded Conclusion = iota
	Failed
	Stopped // by a person or a signal
)

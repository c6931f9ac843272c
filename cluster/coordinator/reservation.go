package coordinator

import (
	"cmp"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// reservation is the engine's allocation, from the request to the release. Owned by the loop,
// except that others may read alloc once allocated is closed, and lastNote once done is closed.
type reservation struct {
	alloc         cluster.Allocation       // nil until the engine has answered
	allocated     chan struct{}            // closed once alloc is set
	answer        *clusterpb.ReserveUpdate // the result of the reservation, nil
	failureRead   chan struct{}            // closed once a client has read that it failed
	failureShown  bool
	saveNext      time.Time // saveSoon waits until then
	releasing     bool
	releaseReason string     // the reason of the release
	released      chan error // the result of the release, cap 1
	lastNote      string     // a warning for Shutdown's last message
	network       string     // ClusterStatus.network
}

func newReservation() reservation {
	return reservation{allocated: make(chan struct{}), failureRead: make(chan struct{}), released: make(chan error, 1)}
}

// finalStatus returns the cluster's final status for the engine, given the reason of its
// release. Loop only.
func (c *Coordinator) finalStatus(reason string) (how cluster.FinalStatus, why string) {
	if f := c.reserved.answer.GetFailure(); f != nil {
		return cluster.Failed, summary(f.GetSummary())
	}
	if !c.cfg.Request.GetOneRun() {
		return cluster.Succeeded, ""
	}
	if c.runs.startError != "" {
		return cluster.Failed, summary(c.runs.startError)
	}
	rec := c.runs.current()
	if rec == nil {
		return cluster.Killed, "ended before its run began: " + summary(reason)
	}
	st := c.status(rec)
	said := strings.TrimSpace(summary(st.GetFailure().GetSummary()))
	switch st.GetState() {
	case "finished":
		return cluster.Succeeded, ""
	case "failed":
		return cluster.Failed, cmp.Or(said, "its run failed")
	}
	return cluster.Killed, cmp.Or(said, summary(reason))
}

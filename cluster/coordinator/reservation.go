package coordinator

import (
	"cmp"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// reservation is what the engine gave, from the answer to its request to the release. Owned by
// the loop, but for what others read once allocated is closed, and parting once done is.
type reservation struct {
	alloc     cluster.Allocation       // nil before the engine has answered
	allocated chan struct{}            // closed once alloc is set
	answer    *clusterpb.ReserveUpdate // the end of the reservation, nil before
	told      chan struct{}            // closed once a client has read that it failed
	isTold    bool
	saveNext  time.Time // saveSoon does not save before
	releasing bool
	why       string     // it is released
	released  chan error // the release's end, cap 1
	parting   string     // what a shutdown tells at its end
}

func newReservation() reservation {
	return reservation{allocated: make(chan struct{}), told: make(chan struct{}), released: make(chan error, 1)}
}

// finalStatus is how the cluster ends, which is given back for a reason. Loop only.
func (c *Coordinator) finalStatus(reason string) (how cluster.FinalStatus, why string) {
	if f := c.reserved.answer.GetFailure(); f != nil {
		return cluster.Failed, summary(f.GetSummary())
	}
	if !c.cfg.Request.GetOneRun() {
		return cluster.Succeeded, ""
	}
	if c.runs.unbegun != "" {
		return cluster.Failed, summary(c.runs.unbegun)
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

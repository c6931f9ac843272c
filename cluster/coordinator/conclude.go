package coordinator

import (
	"cmp"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
)

// finalStatus is how the cluster ends, which is given back for a reason. Loop only.
func (c *Coordinator) finalStatus(reason string) (how cluster.FinalStatus, why string) {
	if f := c.reserve.GetFailure(); f != nil {
		return cluster.Failed, summary(f.GetSummary())
	}
	if !c.cfg.Request.GetOneRun() {
		return cluster.Succeeded, ""
	}
	if c.unbegun != "" {
		return cluster.Failed, summary(c.unbegun)
	}
	rec := c.current()
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

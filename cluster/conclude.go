package cluster

import (
	"cmp"
	"strings"
)

// conclude tells an engine that wants to know how the cluster ends, before its release.
// Loop only.
func (c *Coordinator) conclude(alloc Allocation, reason string) {
	if e, ok := alloc.(Concluder); ok {
		e.Conclude(c.conclusion(reason))
	}
}

// conclusion is how the cluster ends, which is given back for a reason. Loop only.
func (c *Coordinator) conclusion(reason string) (how Conclusion, why string) {
	if f := c.reserve.GetFailure(); f != nil {
		return Failed, summary(f.GetSummary())
	}
	if !c.cfg.Request.GetOneRun() {
		return Succeeded, ""
	}
	if c.unbegun != "" {
		return Failed, summary(c.unbegun)
	}
	rec := c.current()
	if rec == nil {
		return Stopped, "ended before its run began: " + summary(reason)
	}
	st := c.status(rec)
	said := strings.TrimSpace(summary(st.GetFailure().GetSummary()))
	switch st.GetState() {
	case "finished":
		return Succeeded, ""
	case "failed":
		return Failed, cmp.Or(said, "its run failed")
	}
	return Stopped, cmp.Or(said, summary(reason))
}

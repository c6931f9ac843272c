package cluster

import (
	"cmp"
	"strings"
)

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
		return Failed, firstLine(f.GetSummary())
	}
	if !c.cfg.Request.GetOneRun() {
		return Succeeded, ""
	}
	if c.unbegun != "" {
		return Failed, firstLine(c.unbegun)
	}
	rec := c.current()
	if rec == nil {
		return Stopped, "ended before its run began: " + firstLine(reason)
	}
	st := c.status(rec)
	said := strings.TrimSpace(firstLine(st.GetFailure().GetSummary()))
	switch st.GetState() {
	case "finished":
		return Succeeded, ""
	case "failed":
		return Failed, cmp.Or(said, "its run failed")
	}
	return Stopped, cmp.Or(said, firstLine(reason))
}

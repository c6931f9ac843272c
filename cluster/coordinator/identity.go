package coordinator

// isOwn returns whether a run belongs to this cluster, not to an earlier one with the same
// directory. A run without an identity was recorded by an earlier version, or its driver
// died before it was recorded: its number then decides. Loop only.
func (c *Coordinator) isOwn(rec *record) bool {
	if id := rec.status.GetClusterId(); id != "" {
		return id == c.cfg.Authority.ID()
	}
	n := rec.status.GetId()
	return n > c.cfg.Earlier && (c.cfg.Saved != nil || n > c.cfg.LastRun)
}

// current is the record of the cluster's active or last run; nil if it has had none. Runs
// of earlier clusters come before the cluster's own. Loop only.
func (c *Coordinator) current() *record {
	if len(c.records) == 0 {
		return nil
	}
	if rec := c.records[len(c.records)-1]; c.isOwn(rec) {
		return rec
	}
	return nil
}

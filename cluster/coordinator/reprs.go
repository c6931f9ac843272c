package coordinator

import (
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
)

// status is a copy of a record's status as of now. Of the values that the tasks returned,
// which may be many megabytes, it has the reprs alone. Loop only.
func (c *Coordinator) status(rec *record) *clusterpb.RunStatus {
	rec.fill(c.lc.Run(), c.store.Lines(rec.status.GetId()))
	rec.status.Detached = c.detached && rec.over.IsZero()
	result, byTask := rec.status.Result, rec.status.Results
	rec.status.Result, rec.status.Results = nil, nil // the values are not cloned
	st := proto.CloneOf(rec.status)
	rec.status.Result, rec.status.Results = result, byTask
	st.Result, st.Results = result, byTask
	results.KeepReprs(st)
	return st
}

// statusWithValues is status with what the tasks returned. The values are shared with the
// record, which does not change them. Of a run that an earlier driver recorded there are
// only reprs: readValues reads the values. Loop only.
func (c *Coordinator) statusWithValues(rec *record) *clusterpb.RunStatus {
	st := c.status(rec)
	st.Result, st.Results = rec.status.GetResult(), maps.Clone(rec.status.GetResults())
	return st
}

// readValues reads from the run's record on disk what its tasks returned. Where that cannot
// be read, the reprs stay.
func (c *Coordinator) readValues(st *clusterpb.RunStatus) {
	read, err := results.ReadRun(c.cfg.folder(), st.GetId())
	if err != nil {
		c.log.Warn("read what the tasks returned", "run", st.GetId(), "err", err)
		return
	}
	if read.GetResult() != nil || len(read.GetResults()) > 0 {
		st.Result, st.Results = read.GetResult(), read.GetResults()
	}
}

package coordinator

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// mostValues bounds what the tasks of a run may return together, in bytes: it is held in
// memory, written to the run's record and sent to whoever waits for the run's end.
const mostValues = 16 << 20

// values are what the tasks of a run have returned, each in its last attempt. Owned by the
// coordinator's loop.
type values struct {
	of   map[cluster.TaskID]*clusterpb.TaskResult
	size int                   // of those together, in bytes
	lead *clusterpb.TaskResult // whole, of the task whose value is the run's
	cut  []cluster.TaskID      // whose values did not fit into mostValues
}

// put takes what a task returned. A value that does not fit beside the others is kept as
// its repr; the run's own result is kept whole in any case.
func (v *values) put(id cluster.TaskID, result *clusterpb.TaskResult, leads bool) {
	v.drop(id, leads)
	if leads {
		v.lead = result
	}
	if v.size+proto.Size(result) > mostValues && (len(result.GetPickled()) > 0 || result.GetJson() != "") {
		result = &clusterpb.TaskResult{Repr: result.GetRepr()}
		v.cut = append(v.cut, id)
	}
	if v.of == nil {
		v.of = map[cluster.TaskID]*clusterpb.TaskResult{}
	}
	v.of[id] = result
	v.size += proto.Size(result)
}

// drop forgets what a task returned, which is launched again.
func (v *values) drop(id cluster.TaskID, leads bool) {
	if leads {
		v.lead = nil
	}
	v.size -= proto.Size(v.of[id])
	delete(v.of, id)
	v.cut = slices.DeleteFunc(v.cut, func(other cluster.TaskID) bool { return other == id })
}

// settleValues puts what the tasks returned into the run's status, at its end: of those
// that ended well, None where they returned nothing. Loop only.
func (c *Coordinator) settleValues(rec *record) {
	r := c.lc.Run()
	if r == nil || r.Spec.ID != rec.status.GetId() {
		return
	}
	rec.status.Result, rec.status.Results = rec.values.lead, map[string]*clusterpb.TaskResult{}
	for _, t := range r.Tasks {
		if t.State != lifecycle.TaskExited || t.Exit.GetCode() != 0 || t.Exit.GetSignal() != 0 || t.Exit.GetReason() != "" {
			continue
		}
		result := rec.values.of[t.ID]
		if result == nil {
			result = &clusterpb.TaskResult{Json: "null"}
		}
		rec.status.Results[t.ID.String()] = result
	}
	if cut := rec.values.cut; len(cut) > 0 {
		slices.SortFunc(cut, cluster.CompareTasks)
		whose := cut[0].String()
		if n := len(cut) - 1; n > 0 {
			whose += fmt.Sprintf(" and %d more", n)
		}
		c.note(fmt.Sprintf("run.results: of %s the repr alone is kept: the tasks of a run may return %d MB together; write large values to files under ctx.dir", whose, mostValues>>20), true)
	}
}

// resultTask is the task whose value is the run's result: the chief, or worker 0. Where a
// cluster has neither, it is the first task of the first role that the run waits for.
func resultTask(roles []*clusterpb.Role) cluster.TaskID {
	for _, name := range []string{cluster.Chief, "master", cluster.Worker} {
		if slices.ContainsFunc(roles, func(r *clusterpb.Role) bool { return r.GetName() == name && r.GetCount() > 0 }) {
			return cluster.TaskID{Role: name}
		}
	}
	for _, r := range roles {
		if r.GetCount() > 0 && cluster.KindOf(r) == cluster.Tracked {
			return cluster.TaskID{Role: r.GetName()}
		}
	}
	return cluster.TaskID{}
}

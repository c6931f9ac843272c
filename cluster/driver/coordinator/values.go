package coordinator

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// maxValues is the maximum total size of a run's results in bytes: they are held in memory,
// written to the record and sent to clients.
const maxValues = 16 << 20

// values are the results of a run's tasks, each of its last attempt. Owned by the coordinator's
// loop.
type values struct {
	of   map[cluster.TaskID]*clusterpb.TaskResult
	size int                   // the total size in bytes
	lead *clusterpb.TaskResult // the complete result of the task whose result is the run's
	cut  []cluster.TaskID      // whose results are kept as reprs
}

// put stores a task's result, as its repr if it does not fit. The run's own result is always
// stored completely.
func (v *values) put(id cluster.TaskID, result *clusterpb.TaskResult, leads bool) {
	v.drop(id, leads)
	if leads {
		v.lead = result
	}
	if v.size+proto.Size(result) > maxValues && (len(result.GetPickled()) > 0 || result.GetJson() != "") {
		result = &clusterpb.TaskResult{Repr: result.GetRepr(), Evaluation: result.GetEvaluation()}
		v.cut = append(v.cut, id)
	}
	if v.of == nil {
		v.of = map[cluster.TaskID]*clusterpb.TaskResult{}
	}
	v.of[id] = result
	v.size += proto.Size(result)
}

// drop removes the result of a task that is launched again.
func (v *values) drop(id cluster.TaskID, leads bool) {
	if leads {
		v.lead = nil
	}
	v.size -= proto.Size(v.of[id])
	delete(v.of, id)
	v.cut = slices.DeleteFunc(v.cut, func(other cluster.TaskID) bool { return other == id })
}

// settleValues sets the results in the run's status at its end: of tasks that succeeded, None
// if they returned nothing. Loop only.
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
		rec.status.Results[t.ID.String()] = cmp.Or(rec.values.of[t.ID], &clusterpb.TaskResult{Json: "null"})
	}
	if cut := rec.values.cut; len(cut) > 0 {
		slices.SortFunc(cut, cluster.CompareTasks)
		whose := cut[0].String()
		if n := len(cut) - 1; n > 0 {
			whose += fmt.Sprintf(" and %d more", n)
		}
		c.note(fmt.Sprintf("run.results: only the repr of %s is kept: the results of a run are limited to %d MB together; "+
			"write large values to files under ctx.dir", whose, maxValues>>20), true)
	}
}

// resultTask returns the task whose result is the run's: the chief, or worker 0; otherwise the
// first task of the first tracked role.
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

package render

import (
	"fmt"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Over is whether a task's state is final.
func Over(state string) bool {
	return state == "exited" || state == "killed" || state == "lost" || state == "ended"
}

// ClusterWords is a cluster's state in a few words: "run 3 is running 00:12:31".
func ClusterWords(st *clusterpb.ClusterStatus) string {
	r := st.GetRun()
	if r == nil {
		return StateWords(st) + ", no run yet"
	}
	word := fmt.Sprintf("run %d %s", r.GetId(), r.GetState())
	switch r.GetState() {
	case "running", "starting", "stopping":
		word = fmt.Sprintf("run %d is %s %s", r.GetId(), r.GetState(), Clock(r.GetSeconds()))
	case "failed":
		if s := r.GetFailure().GetSummary(); s != "" {
			word += ": " + s
		}
	}
	if state := StateWords(st); state != st.GetState() { // not all executors are ready
		word = state + ", " + word
	}
	if st.GetDetached() {
		word += ", detached"
	}
	return word
}

// Active is whether a run's tasks may still be there.
func Active(r *clusterpb.RunStatus) bool {
	return slices.Contains([]string{"starting", "waiting", "running", "stopping", "restarting"}, r.GetState())
}

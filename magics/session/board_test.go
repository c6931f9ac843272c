package session

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func TestPickRun(t *testing.T) {
	t.Parallel()
	run := func(id int32, state string, metrics bool) *clusterpb.RunStatus {
		r := &clusterpb.RunStatus{Id: id, State: state}
		if metrics {
			r.Series = []*clusterpb.Series{{Name: "loss"}}
		}
		return r
	}
	for _, tt := range []struct {
		name string
		runs []*clusterpb.RunStatus
		id   int32
		want int32
	}{
		{"no runs", nil, 0, 0},
		{"the last one", []*clusterpb.RunStatus{run(1, "finished", true), run(2, "finished", true)}, 0, 2},
		{"the last one with metrics", []*clusterpb.RunStatus{run(1, "failed", true), run(2, "finished", false)}, 0, 1},
		{"the active one", []*clusterpb.RunStatus{run(1, "finished", true), run(2, "running", false)}, 0, 2},
		{"none has metrics", []*clusterpb.RunStatus{run(1, "finished", false), run(2, "failed", false)}, 0, 2},
		{"by its id", []*clusterpb.RunStatus{run(1, "finished", false), run(2, "finished", true)}, 1, 1},
		{"an id that does not exist", []*clusterpb.RunStatus{run(1, "finished", true)}, 3, 0},
	} {
		if got := PickRun(tt.runs, tt.id).GetId(); got != tt.want {
			t.Errorf("%s: run %d, want %d", tt.name, got, tt.want)
		}
	}
}

package results

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestWhy: how a run ended.
func TestWhy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		st             *clusterpb.RunStatus
		text, culprits string
	}{
		{nil, "no run has been started", ""},
		{
			&clusterpb.RunStatus{Id: 3, State: "starting", Waiting: "executor 1"},
			"run 3 is starting: it waits for executor 1", "",
		},
		{&clusterpb.RunStatus{Id: 3, State: "finished", Seconds: 41}, "no run is active: run 3 finished after 41 s", ""},
		{&clusterpb.RunStatus{Id: 3, State: "stopped", Seconds: 200}, "no run is active: run 3 was stopped after 3 min", ""},
		{
			&clusterpb.RunStatus{Id: 4, State: "failed", Seconds: 5, Failure: &clusterpb.Failure{
				Task: "worker:1", Summary: "worker:1 on h2 failed: ValueError: x", Echoes: []string{"worker:0"},
			}},
			"no run is active: run 4 failed after 5 s: worker:1 on h2 failed: ValueError: x; worker:0 failed because of that",
			"worker:1",
		},
	} {
		r := Why(tt.st)
		if r.GetText() != tt.text || strings.Join(r.GetCulprits(), " ") != tt.culprits ||
			r.GetCertain() != (tt.culprits != "") {
			t.Errorf("%v: %q, culprits %v", tt.st, r.GetText(), r.GetCulprits())
		}
	}
}

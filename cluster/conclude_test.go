package cluster

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestConclusion: a cluster that was made for one run ends as the run does, another well.
func TestConclusion(t *testing.T) {
	t.Parallel()
	failed := &clusterpb.RunStatus{Id: 1, State: "failed", Failure: &clusterpb.Failure{Summary: "worker:0 exited with code 17\nat length"}}
	stopped := &clusterpb.RunStatus{Id: 1, State: "stopped", Failure: &clusterpb.Failure{Summary: "stopped on request"}}
	for _, tt := range []struct {
		name   string
		oneRun bool
		refuse string // why the reservation failed
		run    *clusterpb.RunStatus
		how    Conclusion
		why    string
	}{
		{"a failed run", true, "", failed, Failed, "worker:0 exited with code 17"},
		{"a failed run of many", false, "", failed, Succeeded, ""},
		{"a good run", true, "", &clusterpb.RunStatus{Id: 1, State: "finished"}, Succeeded, ""},
		{"a stopped run", true, "", stopped, Stopped, "stopped on request"},
		{"none", true, "", nil, Stopped, "ended before its run began: shut down"},
		{"none of many", false, "", nil, Succeeded, ""},
		{"not reserved", false, "0 of 2 executors came", nil, Failed, "0 of 2 executors came"},
	} {
		c := NewCoordinator(Config{Request: &clusterpb.ReserveRequest{OneRun: tt.oneRun}, StateDir: t.TempDir(), Dir: t.TempDir()})
		c.lc = newLifecycle(nil, nil, defaultLimits())
		if tt.refuse != "" {
			c.reserve = &clusterpb.ReserveUpdate{Failure: &clusterpb.Failure{Summary: tt.refuse}}
		}
		if tt.run != nil {
			c.records = []*record{{status: tt.run, loaded: true}}
		}
		if how, why := c.conclusion("shut down"); how != tt.how || why != tt.why {
			t.Errorf("%s: %d %q, want %d %q", tt.name, how, why, tt.how, tt.why)
		}
		c.depot.Close()
	}
}

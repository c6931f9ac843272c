package coordinator

import (
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/panel"
)

// TestCPUPercent: a task's share of a core is between two heartbeats of one process.
func TestCPUPercent(t *testing.T) {
	t.Parallel()
	rec := newRecord(&clusterpb.RunStatus{Id: 1})
	id := cluster.TaskID{Role: cluster.Worker}
	rec.usage(id, &clusterpb.TaskUsage{Pid: 7, CpuSeconds: 100}, nil)
	if got := rec.task(id).status.GetCpuPercent(); got != 0 {
		t.Errorf("after one heartbeat it is %v", got)
	}
	rec.task(id).used = rec.task(id).used.Add(-2 * time.Second) // as if that was two seconds ago
	rec.usage(id, &clusterpb.TaskUsage{Pid: 7, CpuSeconds: 103}, &panel.GPUs{Percent: 40, Bytes: 7})
	if got := rec.task(id).status.GetCpuPercent(); got < 100 || got > 150 {
		t.Errorf("3 s of CPU in 2 s are %v %%", got)
	}
	if st := rec.task(id).status; st.GetGpuPercent() != 40 || st.GetGpuUsedBytes() != 7 {
		t.Errorf("its GPUs' use is %v %%, %d bytes", st.GetGpuPercent(), st.GetGpuUsedBytes())
	}
	if rec.usage(id, &clusterpb.TaskUsage{Pid: 7, CpuSeconds: 103}, nil); rec.task(id).status.GetGpuUsedBytes() != 0 {
		t.Error("the use of GPUs that are not measured any more is shown")
	}
}

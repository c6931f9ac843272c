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
	beat := func(seconds float64, gpus *panel.GPUs) *clusterpb.Usage {
		u := &clusterpb.TaskUsage{Pid: 7, Usage: &clusterpb.Usage{CpuSeconds: &seconds}}
		gpus.AddTo(u)
		rec.usage(id, u)
		return rec.task(id).status.GetUsage()
	}
	if got := beat(100, nil).GetCpuPercent(); got != 0 {
		t.Errorf("after one heartbeat it is %v", got)
	}
	rec.task(id).used = rec.task(id).used.Add(-2 * time.Second) // as if that was two seconds ago
	got := beat(103, &panel.GPUs{Percent: 40, Bytes: 7})
	if cpu := got.GetCpuPercent(); cpu < 100 || cpu > 150 {
		t.Errorf("3 s of CPU in 2 s are %v %%", cpu)
	}
	if got.GetGpuPercent() != 40 || got.GetGpuUsedBytes() != 7 {
		t.Errorf("its GPUs' use is %v %%, %d bytes", got.GetGpuPercent(), got.GetGpuUsedBytes())
	}
	if after := beat(103, nil); after.GetGpuUsedBytes() != 0 || after.GetCpuPercent() != got.GetCpuPercent() {
		t.Errorf("after a heartbeat at once, without GPUs, it is %v", after)
	}
}

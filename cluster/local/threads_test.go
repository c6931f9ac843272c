package local

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestThreads: chief and workers share the cores; a requested number takes precedence.
func TestThreads(t *testing.T) {
	t.Parallel()
	roles := []*clusterpb.Role{
		{Name: cluster.Chief, Count: 1}, {Name: cluster.Worker, Count: 2, Each: &clusterpb.Resources{Cpus: 2.5}}, {
			Name: cluster.PS, Count: 1,
		},
	}
	var execs []cluster.ExecutorRequest
	for i, task := range cluster.Tasks(roles) {
		e := cluster.ExecutorRequest{ID: cluster.ExecutorID(rune('0' + i)), Task: task}
		for _, r := range roles {
			if r.GetName() == task.Role {
				e.Each = r.GetEach()
			}
		}
		execs = append(execs, e)
	}
	for _, e := range execs {
		for _, c := range []struct{ cores, chief int }{{16, 5}, {3, 1}, {1, 1}} {
			want := map[string]int{cluster.Chief: c.chief, cluster.Worker: 3}[e.Task.Role]
			if got := threads(execs, e.ID, c.cores); got != want {
				t.Errorf("%s of %d cores: %d threads, want %d", e.Task, c.cores, got, want)
			}
		}
	}
}

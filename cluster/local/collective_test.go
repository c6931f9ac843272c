package local_test

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// TestTwoGroups: the tasks of two clusters on one machine add up different numbers at once, in shared memory and
// between hosts, and each has its own sums.
func TestTwoGroups(t *testing.T) {
	for name, hosts := range map[string]string{"shared memory": "", "TCP": "2"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TFCLUSTER_TEST_HOSTS", hosts)
			var runs []*clustertest.Run
			for n := range 2 {
				runs = append(runs, clustertest.Summing(harness(t).Start(t, "worker=2"), 300, 100_000, 1000*n))
			}
			for _, r := range runs {
				clustertest.Summed(t, r)
			}
		})
	}
}

package spark_test

import (
	"os"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// TestWhatIsGivenTravels: --files and an archive as --venv on executors of Spark's.
func TestWhatIsGivenTravels(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	clustertest.Shipped(t, own(t, c), true, os.Getenv("TFCLUSTER_CACHE"))
}

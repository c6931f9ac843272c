package spark_test

import (
	"os"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
)

// TestWhatIsGivenTravels: --files and an archive as --venv on executors of Spark's.
func TestWhatIsGivenTravels(t *testing.T) {
	t.Parallel()
	c := sparktest.Start(t, sparktest.Options{})
	clustertest.Shipped(t, own(c), true, os.Getenv("TFCLUSTER_CACHE"))
}

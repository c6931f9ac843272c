package hadooptest_test

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// Ensure HDFS by itself starts, and again after a kill.
func TestHDFS(t *testing.T) {
	t.Parallel()
	c := hadooptest.Start(t, hadooptest.Options{HDFS: true})
	c.NameNode.Kill()
	c.NameNode.Start()
	c.AwaitHDFS()
}

// Ensure YARN starts with all that Options can ask for, without HDFS, and that its
// daemons can be paused, killed and started again.
func TestYARN(t *testing.T) {
	t.Parallel()
	c := hadooptest.Start(t, hadooptest.Options{
		NodeManagers: 2, GPUs: 2, Labels: []string{"", "fast"}, Recovery: true, Protection: "privacy",
	})
	c.NodeManagers[1].Pause()
	c.NodeManagers[1].Resume()
	c.NodeManagers[1].Kill()
	c.ResourceManager.Kill()
	c.ResourceManager.Start()
	c.NodeManagers[1].Start()
	if left := c.Containers(); len(left) > 0 {
		t.Errorf("containers run: %v", left)
	}
}

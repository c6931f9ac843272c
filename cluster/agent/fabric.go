package agent

import (
	"cmp"
	"os"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	clusterfabric "github.com/tfcluster/tfcluster/cluster/fabric"
	"github.com/tfcluster/tfcluster/rdma/fabric"
)

// testRoot is the variable by which tests give agents another root of the file system to look for network devices in.
const testRoot = "TFCLUSTER_TEST_ROOT"

// findFabric returns this executor's network. It opens no library, and without an RDMA device it reads a
// few files: 0.13 ms here.
func findFabric(address string, gpus []*clusterpb.GPU) *clusterpb.Fabric {
	var uuids []string
	for _, g := range gpus {
		uuids = append(uuids, g.GetUuid())
	}
	found := fabric.Detect(fabric.ThisHost(cmp.Or(os.Getenv(testRoot), "/"), address, uuids))
	return clusterfabric.Report(&found)
}

// ncclChoice collects what NCCL says in a task's lines.
type ncclChoice struct {
	changed func(*clusterpb.NCCLChoice)

	mu     sync.Mutex
	choice fabric.Choice // guarded by mu
}

// read takes a line.
func (n *ncclChoice) read(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.choice.Read(line) {
		n.changed(clusterfabric.Choice(&n.choice))
	}
}

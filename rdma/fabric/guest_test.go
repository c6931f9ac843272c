package fabric

import (
	"os"
	"testing"
)

// TestSoftRoCE: a real device of soft-RoCE is found, with the address by which it is used.
func TestSoftRoCE(t *testing.T) {
	device, address := os.Getenv("TFCLUSTER_TEST_RDMA"), os.Getenv("TFCLUSTER_TEST_RDMA_ADDRESS")
	if device == "" {
		t.Skip("there is no RDMA device: make test-rdma")
	}
	x := Detect(ThisHost("/", address, nil))
	if len(x.Ports) != 1 || x.Ports[0].Device != device || x.Ports[0].Link != RoCE2 || !x.Ports[0].Software ||
		x.Ports[0].Problem != "" {
		t.Fatalf("%+v", x)
	}
	ranks := []Rank{
		{Task: "worker:0", Host: "a", Compared: true, Executor: x},
		{Task: "worker:1", Host: "b", Compared: true, Executor: x},
	}
	d, err := Decide(ranks, RDMA)
	if err != nil || d.Ranks[1].Collective == nil || *d.Ranks[1].Collective != (Collective{device, 1, 1, -1, -1, -1, -1}) {
		t.Errorf("%+v, %v", d, err)
	}
}

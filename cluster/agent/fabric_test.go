package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestFabricInHello: an agent reports the interface of its address, its own settings, and the RDMA devices of the root
// that tests give it.
func TestFabricInHello(t *testing.T) {
	t.Parallel()
	root, dir := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"node_type": "1: CA\n", "ports/1/state": "4: ACTIVE\n", "ports/1/link_layer": "InfiniBand\n",
		"ports/1/rate": "100 Gb/sec (4X EDR)\n",
	} {
		path := filepath.Join(root, "sys/class/infiniband/mlx5_0", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { leftovers(t, dir) })
	c := newCoordinator(t, &clusterpb.WarmUp{Plain: true})
	c.killable(dir, "0", testRoot+"="+root, "NCCL_IB_TC=106")
	c.warmed()
	c.mu.Lock()
	f := c.messages[0].GetHello().GetFabric()
	c.mu.Unlock()
	if f.GetInterface().GetName() != "lo" || f.GetAddress() != "127.0.0.1" {
		t.Errorf("the interface %v of %q", f.GetInterface(), f.GetAddress())
	}
	if len(f.GetPorts()) != 1 || f.GetPorts()[0].GetLink() != "InfiniBand" || f.GetPorts()[0].GetRate() != 100 ||
		f.GetPorts()[0].GetProblem() == "" {
		t.Errorf("ports %v", f.GetPorts())
	}
	if !slices.ContainsFunc(f.GetOwn(), func(s *clusterpb.FabricSetting) bool {
		return s.GetName() == "NCCL_IB_TC" && s.GetValue() == "106" && s.GetSource() == "its environment"
	}) {
		t.Errorf("own settings %v", f.GetOwn())
	}
}

// TestNCCLChoice: what NCCL says in a task's lines is reported, and after a reconnection the newest report only.
func TestNCCLChoice(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Plain: true})
	c.runAgent(nil)
	c.warmed()
	c.prepare(1, 0)
	c.launch(c.command(1, "printf", `NCCL version 2.21.5+cuda12.4\nn:1:2 [0] NCCL INFO NET/IB : `+
		`Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.11<0>\nn:1:2 [0] NCCL INFO Using network IB\n`))
	complete := func(e *clusterpb.TaskEvent) bool {
		n := e.GetNccl()
		return n.GetVersion() == "2.21.5+cuda12.4" && n.GetNetwork() == "IB" &&
			slices.Equal(n.GetDevices(), []string{"mlx5_0:1/RoCE"})
	}
	c.event("what NCCL uses", complete)
	c.exited(1)
	c.mu.Lock()
	c.messages = nil
	address := c.address
	c.mu.Unlock()
	c.stop()
	c.listen(address)
	c.event("what NCCL uses, again", complete)
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, m := range c.messages {
		if m.GetTask().GetNccl() != nil {
			n++
		}
	}
	if n != 1 {
		t.Errorf("it is repeated %d times: %v", n, c.messages)
	}
}

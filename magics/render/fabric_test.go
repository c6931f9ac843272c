package render

import (
	"fmt"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestFabricView: settings of several tasks share a row, ports of one executor follow each other, and
// long lists are cut.
func TestFabricView(t *testing.T) {
	t.Parallel()
	r := &clusterpb.FabricReply{
		Mode: "rdma", Summary: "RoCE v2 on mlx5_0:1, 100 Gb/s, on all 42 executors", Tensorflow: "NCCL on request",
	}
	for i := range 42 {
		address := fmt.Sprintf("10.0.0.%d", i)
		x := &clusterpb.ExecutorFabric{
			Task: fmt.Sprintf("worker:%d", i), Host: fmt.Sprintf("node%d", i), Nccl: "2.21.5", Ports: []string{"mlx5_0:1"},
			Fabric: &clusterpb.Fabric{
				Address: address, Interface: &clusterpb.NetworkInterface{Name: "eth0"},
				Ports: []*clusterpb.FabricPort{{Device: "mlx5_0", Number: 1, Link: "RoCE v2", Rate: 100}},
			},
			Settings: []*clusterpb.FabricSetting{{
				Name: "NCCL_SOCKET_IFNAME", Value: "=eth0", Reason: "eth0 has the address " + address +
					" in the cluster's specification",
			}},
		}
		r.Executors = append(r.Executors, x)
	}
	first := r.GetExecutors()[0]
	first.Fabric.Ports = append(first.Fabric.Ports,
		&clusterpb.FabricPort{Device: "mlx5_1", Number: 1, Link: "InfiniBand", Problem: "its state is DOWN"})
	first.Settings = append(first.Settings,
		&clusterpb.FabricSetting{Name: "NCCL_IB_TC", Value: "106", Source: "/etc/nccl.conf"})
	first.Chosen = &clusterpb.NCCLChoice{
		Version: "2.21.5", Network: "IB", Devices: []string{"mlx5_0:1/RoCE"}, Paths: []string{"NET/IB/GDRDMA", "P2P/CUMEM"},
	}
	r.Executors[1].Fabric = &clusterpb.Fabric{Address: "192.0.2.1"}
	text := FabricView("c", r).Text
	want := `network of cluster c: RoCE v2 on mlx5_0:1, 100 Gb/s, on all 42 executors
as asked for by --fabric rdma
task       host    interface           port      link        rate      used  NCCL    remark
worker:0   node0   eth0 10.0.0.0       mlx5_0:1  RoCE v2     100 Gb/s  yes   2.21.5
                                       mlx5_1:1  InfiniBand                          its state is DOWN
worker:1   node1   none has 192.0.2.1                                        2.21.5
worker:2   node2   eth0 10.0.0.2       mlx5_0:1  RoCE v2     100 Gb/s  yes   2.21.5
`
	if len(text) < len(want) || text[:len(want)] != want {
		t.Errorf("it begins\n%s\nwant\n%s", text, want)
	}
	end := `…          2 more
variable            value  set by          reason                                                          tasks
NCCL_SOCKET_IFNAME  =eth0  tfcluster       eth0 has the executor's address in the cluster's specification  ` +
		`worker:0, worker:2, worker:3, worker:4 and 37 more
NCCL_IB_TC          106    /etc/nccl.conf                                                                  worker:0
NCCL_SOCKET_IFNAME  =eth0  tfcluster       eth0 has the address 10.0.0.1 in the cluster's specification    worker:1
what NCCL says that it uses:
task      NCCL    network  devices        channels
worker:0  2.21.5  IB       mlx5_0:1/RoCE  NET/IB/GDRDMA P2P/CUMEM
NCCL on request
`
	if len(text) < len(end) || text[len(text)-len(end):] != end {
		t.Errorf("it ends\n%s\nwant\n%s", text[max(0, len(text)-len(end)-200):], end)
	}
	if got := FabricView("c", &clusterpb.FabricReply{Mode: "auto"}).Text; got !=
		"network of cluster c: no executor is here yet\n" {
		t.Errorf("without executors: %q", got)
	}
}

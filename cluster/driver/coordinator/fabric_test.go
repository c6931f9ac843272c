package coordinator

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// fabricOf is the network of an executor with one port of RoCE.
func fabricOf(address string, problem string) *clusterpb.Fabric {
	return &clusterpb.Fabric{
		Address:   address,
		Interface: &clusterpb.NetworkInterface{Name: "eth0", Prefixes: []string{address + "/24"}, Rate: 100},
		Ports: []*clusterpb.FabricPort{{
			Device: "mlx5_0", Number: 1, Link: "RoCE v2", State: "ACTIVE", Rate: 100, Layer: "Ethernet", Netdev: "eth0",
			Problem: problem, Gids: []*clusterpb.FabricGID{{Index: 3, Version: 2, Prefix: address + "/24"}},
		}},
	}
}

// reserveOn lets a cluster's executors join with these networks.
func reserveOn(t *testing.T, env map[string]string, fabrics ...*clusterpb.Fabric) (*coordinated, []*agentConn) {
	t.Helper()
	c := coordinate(t, false, func(cfg *Config) { cfg.Request.Env = env })
	c.engine.answer <- nil
	var conns []*agentConn
	for i, f := range fabrics {
		id := string(rune('0' + i))
		conn := newAgentConn(cluster.ExecutorID(id))
		conns = append(conns, conn)
		c.do(func() {
			c.join(conn, &clusterpb.Hello{
				Protocol: clusterpb.Protocol, ExecutorId: id, Incarnation: id, Host: "host" + id, Address: f.GetAddress(),
				Warmed: true, Fabric: f, Python: &clusterpb.Python{Version: "3.11.7", Tensorflow: "2.21.0", Nccl: "2.18.1"},
			})
		})
	}
	return c, conns
}

// launched returns the environment of each task's launch, with the port of its collective calls.
func (c *coordinated) launched(conns []*agentConn, options *clusterpb.RunOptions) []map[string]string {
	c.t.Helper()
	if _, err := c.startRun(within(c.t), &clusterpb.StartRequest{
		Program: &clusterpb.Program{Kind: clusterpb.Program_CELL, Name: "cell"}, Options: options,
	}); err != nil {
		c.t.Fatal(err)
	}
	for i := range conns {
		c.do(func() {
			c.handle(
				lifecycle.PortPrepared{Exec: cluster.ExecutorID(string(rune('0' + i))), Run: 1, Attempt: 1, Port: int32(4000 + i)})
		})
	}
	var envs []map[string]string
	for _, conn := range conns {
		for _, in := range conn.take() {
			if l := in.GetLaunch(); l != nil {
				env := maps.Clone(l.GetEnv())
				maps.DeleteFunc(env, func(name, _ string) bool {
					return !strings.HasPrefix(name, "NCCL_") && !strings.HasPrefix(name, "GLOO_")
				})
				if p := l.GetCollective(); p != nil {
					env["collective calls"] = fmt.Sprintf("%s:%d, GID %d", p.GetDevice(), p.GetPort(), p.GetGid())
				}
				envs = append(envs, env)
			}
		}
	}
	return envs
}

// TestNetworkSettings: tasks get the settings of their executors' network; what the user has set is left alone.
func TestNetworkSettings(t *testing.T) {
	t.Parallel()
	two := []*clusterpb.Fabric{fabricOf("10.0.0.11", ""), fabricOf("10.0.0.12", "")}
	two[1].Own = []*clusterpb.FabricSetting{{Name: "NCCL_IB_GID_INDEX", Value: "5", Source: "its environment"}}
	mixed := []*clusterpb.Fabric{
		fabricOf("10.0.0.11", ""), fabricOf("10.0.0.12", "at most 64 kB of memory may be locked (ulimit -l)"),
	}
	plain := []*clusterpb.Fabric{
		{Address: "127.0.0.1", Interface: &clusterpb.NetworkInterface{Name: "lo", Prefixes: []string{"127.0.0.1/8"}}},
	}
	plain = append(plain, plain[0])
	for _, tt := range []struct {
		name    string
		fabrics []*clusterpb.Fabric
		env     map[string]string
		options *clusterpb.RunOptions
		line    string
		want    []map[string]string
	}{
		{
			"RoCE", two,
			map[string]string{"NCCL_SOCKET_IFNAME": "y"},
			&clusterpb.RunOptions{Env: map[string]string{"NCCL_SOCKET_IFNAME": "x"}},
			"network: RoCE v2 on mlx5_0:1, 100 Gb/s, on all 2 executors",
			[]map[string]string{
				{
					"NCCL_SOCKET_IFNAME": "x", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_IB_GID_INDEX": "3",
					"collective calls": "mlx5_0:1, GID 3",
				},
				// The zygote has its own NCCL_IB_GID_INDEX.
				{"NCCL_SOCKET_IFNAME": "x", "GLOO_SOCKET_IFNAME": "eth0", "collective calls": "mlx5_0:1, GID 3"},
			},
		},
		{
			"TCP by request", two, nil, &clusterpb.RunOptions{Fabric: "tcp"},
			"network: RoCE v2 on mlx5_0:1, 100 Gb/s, on all 2 executors",
			[]map[string]string{
				{"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_IB_DISABLE": "1"},
				{"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_IB_DISABLE": "1"},
			},
		},
		{
			"one executor cannot", mixed, nil, nil,
			"network: Ethernet on eth0, 100 Gb/s, on all 2 executors; no RDMA: worker:1 on host1: mlx5_0:1: " +
				"at most 64 kB of memory may be locked (ulimit -l)",
			[]map[string]string{
				{"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_IB_DISABLE": "1"},
				{"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_IB_DISABLE": "1"},
			},
		},
		{
			"Ethernet", plain, nil, nil, "network: Ethernet on lo, on all 2 executors",
			[]map[string]string{
				{"NCCL_SOCKET_IFNAME": "=lo", "GLOO_SOCKET_IFNAME": "lo"},
				{"NCCL_SOCKET_IFNAME": "=lo", "GLOO_SOCKET_IFNAME": "lo"},
			},
		},
		{
			"agents that report nothing", []*clusterpb.Fabric{nil, nil}, nil, nil, "network: Ethernet, " +
				"on all 2 executors", []map[string]string{{}, {}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, conns := reserveOn(t, tt.env, tt.fabrics...)
			st, err := c.Control().Status(within(t), &clusterpb.StatusRequest{})
			if err != nil || st.GetNetwork() != tt.line {
				t.Errorf("the line %q, %v, want %q", st.GetNetwork(), err, tt.line)
			}
			got := c.launched(conns, tt.options)
			if len(got) != len(tt.want) {
				t.Fatalf("launches %v", got)
			}
			for i := range got {
				if !maps.Equal(got[i], tt.want[i]) {
					t.Errorf("worker:%d has %v, want %v", i, got[i], tt.want[i])
				}
			}
		})
	}
}

// TestFabricRefused: a start with --fabric rdma that is not possible is refused in one line, and nothing has begun.
func TestFabricRefused(t *testing.T) {
	t.Parallel()
	c, conns := reserveOn(t, nil, fabricOf("10.0.0.11", ""), nil)
	for mode, want := range map[string]string{
		"rdma": "--fabric rdma: worker:1 on host1: it has no RDMA device; --fabric auto uses TCP then",
		"wifi": "--fabric wifi: want auto, tcp or rdma",
	} {
		_, err := c.startRun(within(t), &clusterpb.StartRequest{
			Program: &clusterpb.Program{Kind: clusterpb.Program_CELL}, Options: &clusterpb.RunOptions{Fabric: mode},
		})
		if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != want {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
	}
	if envs := c.launched(conns, nil); len(envs) != 2 {
		t.Errorf("a start after it launches %v", envs)
	}
}

// TestChosenNetwork: the reply has what NCCL says that it uses.
func TestChosenNetwork(t *testing.T) {
	t.Parallel()
	c, conns := reserveOn(t, nil, fabricOf("10.0.0.11", ""), fabricOf("10.0.0.12", ""))
	c.launched(conns, nil)
	chosen := &clusterpb.NCCLChoice{Network: "IB", Devices: []string{"mlx5_0:1/RoCE"}}
	c.do(func() {
		c.agentMessage(conns[1], &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Task{Task: &clusterpb.TaskEvent{
			Run: 1, Attempt: 1, Task: "worker:1", Event: &clusterpb.TaskEvent_Nccl{Nccl: chosen},
		}}})
	})
	reply, err := c.Control().Fabric(within(t), &clusterpb.FabricRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if x := reply.GetExecutors(); len(x) != 2 || x[0].GetChosen() != nil || x[1].GetChosen().GetNetwork() != "IB" ||
		x[0].GetNccl() != "2.18.1" || len(x[0].GetPorts()) != 1 {
		t.Errorf("executors %v", x)
	}
}

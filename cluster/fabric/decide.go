package fabric

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/fabric"
)

// Member is an executor of the cluster, as its agent has reported it.
type Member struct {
	Task, Host string
	Compared   bool // its task exchanges data with the others by collective calls
	Python     *clusterpb.Python
	Fabric     *clusterpb.Fabric
}

// Given is the user's environment of the tasks.
type Given struct{ Reserve, Start map[string]string }

// Decide chooses the network of the members for a mode of start --fabric; "": auto. The error is the reason why they
// cannot have it, in one line; the reply is then what they have instead, nil if there is no such mode.
func Decide(members []Member, mode string, given Given) (*clusterpb.FabricReply, error) {
	mode = cmp.Or(mode, string(fabric.Auto))
	if !slices.Contains([]fabric.Mode{fabric.Auto, fabric.TCP, fabric.RDMA}, fabric.Mode(mode)) {
		return nil, fmt.Errorf("--fabric %s: want auto, tcp or rdma", mode)
	}
	variables := append(variablesOf(given.Start, "start --env"), variablesOf(given.Reserve, "reserve --env")...)
	ranks := make([]fabric.Rank, len(members))
	for i, m := range members {
		ranks[i] = fabric.Rank{
			Task: m.Task, Host: m.Host, Compared: m.Compared, NCCL: m.Python.GetNccl(), Given: variables,
			Executor: executor(m.Fabric),
		}
	}
	d, err := fabric.Decide(ranks, fabric.Mode(mode))
	reply := &clusterpb.FabricReply{
		Mode: mode, Link: string(d.Link), Why: d.Why, Summary: d.Summary, Tensorflow: d.TensorFlow,
	}
	for i, m := range members {
		x := &clusterpb.ExecutorFabric{
			Task: m.Task, Host: m.Host, Fabric: m.Fabric, Ports: d.Ranks[i].Ports, Nccl: m.Python.GetNccl(),
		}
		for _, s := range d.Ranks[i].Settings {
			x.Settings = append(x.Settings,
				&clusterpb.FabricSetting{Name: s.Name, Value: s.Value, Reason: s.Reason, Source: s.Source})
		}
		x.Collective = collective(d.Ranks[i].Collective)
		reply.Executors = append(reply.Executors, x)
	}
	return reply, err
}

func collective(c *fabric.Collective) *clusterpb.CollectivePort {
	if c == nil {
		return nil
	}
	number := func(n int) *int32 {
		if n < 0 {
			return nil
		}
		return new(int32(n))
	}
	return &clusterpb.CollectivePort{
		Device: c.Device, Port: int32(c.Port), Gid: int32(c.GID),
		Timeout: number(c.Timeout), Retries: number(c.Retries), TrafficClass: number(c.TrafficClass),
		ServiceLevel: number(c.ServiceLevel),
	}
}

func variablesOf(env map[string]string, source string) []fabric.Variable {
	var all []fabric.Variable
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, fabric.Variable{Name: name, Value: env[name], Source: source})
	}
	return all
}

package yarn

import (
	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// spread is where executors are best begun where there are more of them than nodes: each
// on that node with room which has the fewest of them so far. A node's heartbeat gives as
// many of those that name the node as it has room for, and a single one of those that
// name none: they would wait for a heartbeat each, and come to lie as those fall. Where
// there are more nodes, naming one would have it wait for just that node's heartbeat.
func spread(executors []cluster.ExecutorRequest, nodes []*yarnpb.NodeReport) map[cluster.ExecutorID]protocol.Spot {
	type room struct {
		spot  protocol.Spot
		free  *yarnpb.Resource
		count int // of executors
	}
	var rooms []*room
	for _, n := range nodes {
		if partition(n) == "" && n.GetRackName() != "" {
			rooms = append(rooms, &room{
				spot: protocol.Spot{Host: n.GetNodeId().GetHost(), Rack: n.GetRackName()},
				free: minus(n.GetCapability(), n.GetUsed()),
			})
		}
	}
	near := map[cluster.ExecutorID]protocol.Spot{}
	if len(executors) <= len(rooms) {
		return near
	}
	for _, e := range executors {
		need := resource(e.Each)
		var best *room
		for _, r := range rooms {
			if e.Each.GetNodeLabel() == "" && fits(need, r.free) &&
				(best == nil || r.count < best.count || r.count == best.count && r.free.GetMemory() > best.free.GetMemory()) {
				best = r
			}
		}
		if best != nil { // else YARN finds a place
			near[e.ID], best.free = best.spot, minus(best.free, need)
			best.count++
		}
	}
	return near
}

// minus is what is left of a resource.
func minus(of, r *yarnpb.Resource) *yarnpb.Resource {
	return protocol.MemoryAndCores(of.GetMemory()-r.GetMemory(), of.GetVirtualCores()-r.GetVirtualCores(), map[string]int64{gpuType: gpus(of) - gpus(r)})
}

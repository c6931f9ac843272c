package yarn

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// manyNodes is the number of nodes for each executor after the first from which no node is named.
const manyNodes = 4

// placements returns the preferred node of each executor: without pack the node with room that has the fewest
// executors so far, with pack the one that has the most.
//
// With one heartbeat of a node, YARN allocates all requests that name it, as far as they fit, but only one request that
// names no node. So unnamed requests would wait for one heartbeat each and be spread at random, and on a cluster of few
// nodes some would share one. On a cluster of many nodes, naming one would only make a request wait for that node's
// heartbeat.
func placements(executors []cluster.ExecutorRequest, nodes []*yarnpb.NodeReport,
	pack bool,
) map[cluster.ExecutorID]protocol.Locality {
	type room struct {
		spot  protocol.Locality
		free  *yarnpb.Resource
		count int // executors placed here
	}
	var rooms []*room
	for _, n := range nodes {
		if partition(n) == "" && n.GetRackName() != "" {
			rooms = append(rooms, &room{
				spot: protocol.Locality{Host: n.GetNodeId().GetHost(), Rack: n.GetRackName()},
				free: minus(n.GetCapability(), n.GetUsed()),
			})
		}
	}
	near := map[cluster.ExecutorID]protocol.Locality{}
	if len(rooms) >= manyNodes*(len(executors)-1) && !pack {
		return near
	}
	better := func(r, than *room) bool {
		if r.count != than.count {
			return r.count > than.count == pack
		}
		return r.free.GetMemory() > than.free.GetMemory()
	}
	for _, e := range executors {
		need := resource(e.Each)
		var best *room
		for _, r := range rooms {
			if e.Each.GetNodeLabel() == "" && fits(need, r.free) && (best == nil || better(r, best)) {
				best = r
			}
		}
		if best != nil { // otherwise YARN chooses
			near[e.ID], best.free = best.spot, minus(best.free, need)
			best.count++
		}
	}
	return near
}

// OtherHosts implements cluster.HostLister: running nodes without a container of the cluster that have room for one.
func (a *allocation) OtherHosts(ctx context.Context, _ string) ([]string, error) {
	own := map[string]bool{}
	a.mu.Lock()
	for _, x := range a.executors {
		own[x.container.GetNodeId().GetHost()] = true
	}
	a.mu.Unlock()
	if len(own) > 1 { // one machine with several NodeManagers: the containers are spread already
		return nil, nil
	}
	reports, err := a.nodeReports(ctx)
	if err != nil {
		return nil, err
	}
	each := a.req.Executors[0].Each
	var others []string
	for _, r := range reports {
		if host := r.GetNodeId().GetHost(); !own[host] && partition(r) == each.GetNodeLabel() &&
			fits(resource(each), minus(r.GetCapability(), r.GetUsed())) {
			others = append(others, host)
		}
	}
	return others, nil
}

// minus returns what is left of a resource.
func minus(of, r *yarnpb.Resource) *yarnpb.Resource {
	return protocol.MemoryAndCores(of.GetMemory()-r.GetMemory(), of.GetVirtualCores()-r.GetVirtualCores(),
		map[string]int64{gpuType: gpus(of) - gpus(r)})
}

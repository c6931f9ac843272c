package protocol

import (
	"slices"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Ask is a wish for one container.
type Ask struct {
	// ID is the wish's name, not negative; the container that comes bears it.
	ID       int64
	Priority int32 // lower ones are served first; one for each kind of Resource
	Resource *yarnpb.Resource
	Label    string // of the node, "" for none
	// Near is where it is best: it is given elsewhere where there is no room. The zero
	// Spot is none. A scheduler gives one container a heartbeat of a node to wishes
	// without it, to those that name the node as many as there is room for.
	Near Spot
}

// Spot is a node, as YARN's reports call it.
type Spot struct {
	Host string
	Rack string
}

// Ask asks for containers, by the next heartbeat.
func (m *Master) Ask(asks ...Ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range asks {
		m.asks[a.ID] = a
		m.changed = append(m.changed, a.requests(1)...)
	}
}

// Withdraw takes wishes back that were not granted. A container may be on its way.
//
// A heartbeat that is refused for one of its wishes asks for none of them; it is refused
// again until that wish is withdrawn.
func (m *Master) Withdraw(ids ...int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.changed = slices.DeleteFunc(m.changed, func(r *yarnpb.ResourceRequest) bool { return r.GetAllocationRequestId() == id })
		if a, ok := m.asks[id]; ok && m.told[id] {
			m.changed = append(m.changed, a.requests(0)...)
		}
		delete(m.asks, id)
	}
}

// Disown takes back wishes of an earlier process's, by the next heartbeat. They may be
// granted already.
func (m *Master) Disown(asks ...Ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range asks {
		m.changed = append(m.changed, a.requests(0)...)
	}
}

// requests ask for it n times. A scheduler wants to be told of a node's rack, and of
// everywhere, with the node.
func (a Ask) requests(n int32) []*yarnpb.ResourceRequest {
	all := []*yarnpb.ResourceRequest{a.request("*", n)}
	if a.Near != (Spot{}) {
		all = append(all, a.request(a.Near.Host, n), a.request(a.Near.Rack, n))
	}
	return all
}

func (a Ask) request(where string, n int32) *yarnpb.ResourceRequest {
	r := &yarnpb.ResourceRequest{
		Priority: &yarnpb.Priority{Priority: &a.Priority}, ResourceName: &where, Capability: a.Resource,
		NumContainers: &n, RelaxLocality: new(true), AllocationRequestId: &a.ID,
		ExecutionTypeRequest: &yarnpb.ExecutionTypeRequest{ExecutionType: yarnpb.ExecutionType_GUARANTEED.Enum()},
	}
	if a.Label != "" {
		r.NodeLabelExpression = &a.Label
	}
	return r
}

// newest are the last words about each wish and place: two about one would contradict.
func newest(changed []*yarnpb.ResourceRequest) []*yarnpb.ResourceRequest {
	type about struct {
		wish  int64
		where string
	}
	of := func(r *yarnpb.ResourceRequest) about { return about{r.GetAllocationRequestId(), r.GetResourceName()} }
	last := map[about]int{}
	for i, r := range changed {
		last[of(r)] = i
	}
	var kept []*yarnpb.ResourceRequest
	for i, r := range changed {
		if last[of(r)] == i {
			kept = append(kept, r)
		}
	}
	return kept
}

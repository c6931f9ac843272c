package protocol

import (
	"slices"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// ContainerRequest is a request for one container.
type ContainerRequest struct {
	// ID is the allocation request ID, which is not negative. The allocated container has the same.
	ID       int64
	Priority int32 // lower ones are served first; each Resource size needs a different one
	Resource *yarnpb.Resource
	Label    string // node label, or ""
	// Near is the preferred node, unless it is zero. If the node has no room, the container is allocated
	// elsewhere. With one heartbeat of a node the scheduler allocates one request without a preferred node,
	// but all requests that prefer the node, as far as they fit.
	Near Locality
}

// Locality names a node as its NodeReport does.
type Locality struct {
	Host string
	Rack string
}

// Request requests containers with the next heartbeat.
func (m *Master) Request(requests ...ContainerRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range requests {
		m.requests[a.ID] = a
		m.updates = append(m.updates, a.resourceRequests(1)...)
	}
}

// Withdraw withdraws requests that were not allocated. A container may be allocated at the same time.
//
// If YARN rejects one request of a heartbeat, it ignores all of them, and rejects the next heartbeats until
// that request is withdrawn.
func (m *Master) Withdraw(ids ...int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.updates = slices.DeleteFunc(m.updates,
			func(r *yarnpb.ResourceRequest) bool { return r.GetAllocationRequestId() == id })
		if a, ok := m.requests[id]; ok && m.sent[id] {
			m.updates = append(m.updates, a.resourceRequests(0)...)
		}
		delete(m.requests, id)
	}
}

// WithdrawEarlier withdraws requests of an earlier process with the next heartbeat. They may be allocated
// already.
func (m *Master) WithdrawEarlier(requests ...ContainerRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range requests {
		m.updates = append(m.updates, a.resourceRequests(0)...)
	}
}

// resourceRequests returns the entries that request n containers. With a preferred node, YARN needs further
// entries for the node and its rack.
func (a ContainerRequest) resourceRequests(n int32) []*yarnpb.ResourceRequest {
	all := []*yarnpb.ResourceRequest{a.resourceRequest("*", n)}
	if a.Near != (Locality{}) {
		all = append(all, a.resourceRequest(a.Near.Host, n), a.resourceRequest(a.Near.Rack, n))
	}
	return all
}

func (a ContainerRequest) resourceRequest(where string, n int32) *yarnpb.ResourceRequest {
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

// latest returns the last entry for each request and resource name: YARN must not get two of them.
func latest(changed []*yarnpb.ResourceRequest) []*yarnpb.ResourceRequest {
	type key struct {
		id    int64
		where string
	}
	of := func(r *yarnpb.ResourceRequest) key { return key{r.GetAllocationRequestId(), r.GetResourceName()} }
	last := map[key]int{}
	for i, r := range changed {
		last[of(r)] = i
	}
	var result []*yarnpb.ResourceRequest
	for i, r := range changed {
		if last[of(r)] == i {
			result = append(result, r)
		}
	}
	return result
}

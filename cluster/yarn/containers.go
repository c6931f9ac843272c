package yarn

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// mostPlaces bounds what is remembered of containers: the newest.
const mostPlaces = 500

// used remembers a container. It is called with mu held.
func (a *allocation) used(x *executor, c *yarnpb.Container) {
	a.places = append(a.places, containerlogs.Location{
		Container: protocol.ContainerName(c.GetId()), Node: protocol.NodeName(c.GetNodeId()), Web: c.GetNodeHttpAddress(),
		Executor: x.request.ID, Task: x.request.Task.String(), Attempt: x.attempt,
	})
	a.places = a.places[max(0, len(a.places)-mostPlaces):]
}

// LogLocations are the containers that were used.
func (a *allocation) LogLocations() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, err := json.Marshal(a.places)
	if err != nil {
		panic(err) // plain data
	}
	return b
}

const leaseRuns = "running"

// lease notes another application. It is called with mu held, or before begin.
func (a *allocation) lease(id *yarnpb.ApplicationId) {
	name := protocol.ApplicationName(id)
	n := len(a.leases)
	if id == nil || n > 0 && a.leases[n-1].ID == name {
		return
	}
	if n > 0 && a.leases[n-1].State == leaseRuns {
		a.leases[n-1].State = "ended while no driver was there"
	}
	a.leases = append(a.leases, cluster.Application{ID: name, State: leaseRuns, Since: time.Now()})
}

// leaseOver notes how the last application ended, unless that is known.
func (a *allocation) leaseOver(state string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.leases); n > 0 && a.leases[n-1].State == leaseRuns {
		a.leases[n-1].State = state
	}
}

// Applications are the applications that this allocation has been.
func (a *allocation) Applications() []cluster.Application {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.leases)
}

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

// maxContainers bounds the list of used containers; the oldest are dropped.
const maxContainers = 500

// addContainer records a used container. It is called with mu held.
func (a *allocation) addContainer(x *executor, c *yarnpb.Container) {
	a.containers = append(a.containers, containerlogs.Location{
		Container: protocol.ContainerName(c.GetId()), Node: protocol.NodeName(c.GetNodeId()), Web: c.GetNodeHttpAddress(),
		Executor: x.request.ID, Task: x.request.Task.String(), Attempt: x.attempt,
	})
	a.containers = a.containers[max(0, len(a.containers)-maxContainers):]
}

// LogLocations returns the containers that were used, for containerlogs.History.
func (a *allocation) LogLocations() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return plainJSON(a.containers)
}

// plainJSON returns data that JSON can always hold.
func plainJSON(data any) []byte {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err) // plain data
	}
	return b
}

const applicationRunning = "running"

// addApplication records another application. It is called with mu held, or before start.
func (a *allocation) addApplication(id *yarnpb.ApplicationId) {
	name := protocol.ApplicationName(id)
	n := len(a.applications)
	if id == nil || n > 0 && a.applications[n-1].ID == name {
		return
	}
	if n > 0 && a.applications[n-1].State == applicationRunning {
		a.applications[n-1].State = "ended while no driver ran"
	}
	a.applications = append(a.applications, cluster.Application{ID: name, State: applicationRunning, Since: time.Now()})
}

// endApplication records the final state of the last application, unless it has one.
func (a *allocation) endApplication(state string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.applications); n > 0 && a.applications[n-1].State == applicationRunning {
		a.applications[n-1].State = state
	}
}

// Applications returns the applications that this allocation has used, oldest first.
func (a *allocation) Applications() []cluster.Application {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.applications)
}

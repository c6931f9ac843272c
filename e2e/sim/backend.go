package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/tfcluster/tfcluster/cluster"
)

// engineName is what the driver knows the backend by.
const engineName = "sim"

// engineSocket is the key of a request that names where the agents' process listens.
const engineSocket = "sim-agents"

// backend is an engine that grants every executor at once. It hands the agents'
// configurations to the process that simulates them.
type backend struct{}

// Allocate implements cluster.Backend.
func (backend) Allocate(ctx context.Context, req cluster.Request) (cluster.Allocation, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", req.Reserve.GetEngine()[engineSocket])
	if err != nil {
		return nil, fmt.Errorf("call the agents' process: %w", err)
	}
	defer conn.Close()
	a := &allocation{events: make(chan cluster.Event, len(req.Executors))}
	to := json.NewEncoder(conn)
	for _, x := range req.Executors {
		config, err := req.AgentConfig(x.ID, 0)
		var encoded json.RawMessage
		if err == nil {
			encoded, err = config.Encode()
		}
		if err == nil {
			err = to.Encode(encoded)
		}
		if err != nil {
			return nil, fmt.Errorf("hand an agent its configuration: %w", err)
		}
		a.events <- cluster.Granted{Executor: x.ID, Host: "localhost"}
	}
	return a, nil
}

// Recover implements cluster.Backend.
func (backend) Recover(context.Context, cluster.Request, []byte) (cluster.Allocation, error) {
	return nil, errors.New("a simulated cluster is not taken over")
}

// allocation is what backend grants.
type allocation struct{ events chan cluster.Event }

// ID implements cluster.Allocation.
func (*allocation) ID() string { return engineName }

// Events implements cluster.Allocation.
func (a *allocation) Events() <-chan cluster.Event { return a.events }

// Replace implements cluster.Allocation.
func (*allocation) Replace(_ context.Context, id cluster.ExecutorID) error {
	return fmt.Errorf("executor %s is simulated, and not replaced", id)
}

// Saved implements cluster.Allocation.
func (*allocation) Saved() []byte { return []byte("{}") }

// Release implements cluster.Allocation.
func (*allocation) Release(context.Context, cluster.FinalStatus, string) error { return nil }

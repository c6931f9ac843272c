package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/tfcluster/tfcluster/cluster"
)

// engineName is the backend's name.
const engineName = "sim"

// socketKey is the request's engine option with the socket of the agents' process.
const socketKey = "sim-agents"

// backend is an engine that grants every executor at once. It sends the agents' configurations to the
// process that simulates them.
type backend struct{}

// Allocate implements cluster.Backend.
func (backend) Allocate(ctx context.Context, req cluster.Request) (cluster.Allocation, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", req.Reserve.GetEngine()[socketKey])
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
			return nil, fmt.Errorf("send an agent's configuration: %w", err)
		}
		a.events <- cluster.Granted{Executor: x.ID, Host: "localhost"}
	}
	return a, nil
}

// Recover implements cluster.Backend.
func (backend) Recover(context.Context, cluster.Request, []byte) (cluster.Allocation, error) {
	return nil, errors.New("a simulated cluster cannot be recovered")
}

// allocation is an allocation of simulated executors.
type allocation struct{ events chan cluster.Event }

// ID implements cluster.Allocation.
func (*allocation) ID() string { return engineName }

// Events implements cluster.Allocation.
func (a *allocation) Events() <-chan cluster.Event { return a.events }

// Replace implements cluster.Allocation.
func (*allocation) Replace(_ context.Context, id cluster.ExecutorID) error {
	return fmt.Errorf("executor %s is simulated and cannot be replaced", id)
}

// Saved implements cluster.Allocation.
func (*allocation) Saved() []byte { return []byte("{}") }

// Release implements cluster.Allocation.
func (*allocation) Release(context.Context, cluster.FinalStatus, string) error { return nil }

package spark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Backend starts agents on the executors of a SparkSession.
type Backend struct {
	// PythonPath puts the Python package tfcluster below a folder and returns what
	// belongs on PYTHONPATH; it is cluster/python's Extract.
	PythonPath func(folder string) (string, error)
}

var (
	_ cluster.Backend       = (*Backend)(nil)
	_ cluster.RemoteEngine  = (*Backend)(nil)
	_ cluster.AgentLogs     = (*allocation)(nil)
	_ cluster.SessionSharer = (*allocation)(nil)
)

// FailureDetectionDelay is 0: Spark does not notice that an agent ends, whose stage is over.
func (b *Backend) FailureDetectionDelay() time.Duration { return 0 }

// InitialStatus says whose session is awaited.
func (b *Backend) InitialStatus(r *clusterpb.ReserveRequest) string {
	switch master := masterOf(r); {
	case borrowed(r):
		return "the notebook's SparkSession " + r.GetEngine()[engineSession] + " is asked"
	case master != "":
		return "a Spark session is being made at " + master
	}
	return "a Spark session is being made"
}

// Allocate waits for the session, checks it, and has agents started. It returns once
// Spark has taken the request; a session that cannot be made is its error, in one line.
func (b *Backend) Allocate(ctx context.Context, req cluster.Request) (cluster.Allocation, error) {
	if err := check(req); err != nil {
		return nil, err
	}
	if err := reachMaster(ctx, req.Reserve); err != nil {
		return nil, err
	}
	a, err := newAllocation(b, req, saved{})
	if err != nil {
		return nil, err
	}
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.Release(ctx, cluster.Failed, ""))
	}
	a.launch(a.all())
	return a, nil
}

// Recover takes the session up again that the last driver's host kept. Agents that
// live join by themselves; where the session is gone, so are they, and all are
// started anew.
func (b *Backend) Recover(ctx context.Context, req cluster.Request, raw []byte) (cluster.Allocation, error) {
	var old saved
	if err := json.Unmarshal(raw, &old); err != nil {
		return nil, fmt.Errorf("read what the last driver saved of its Spark session: %w", err)
	}
	a, err := newAllocation(b, req, old)
	if err != nil {
		return nil, err
	}
	kept, err := a.reopen(ctx)
	if err != nil {
		return nil, errors.Join(err, a.Release(ctx, cluster.Failed, ""))
	}
	if !kept {
		for _, e := range req.Executors {
			a.attempts[e.ID]++
			a.tell(cluster.Reallocated{Executor: e.ID, Attempt: a.attempts[e.ID]})
		}
		a.launch(a.all())
		return a, nil
	}
	for _, e := range req.Executors {
		a.tell(cluster.Granted{Executor: e.ID, Attempt: a.attempts[e.ID], Recovered: true})
	}
	return a, nil
}

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

// Backend starts agents on the executors of a SparkSession. It implements cluster.Backend.
type Backend struct {
	// PythonPath extracts the Python package tfcluster below a folder and returns the entry for
	// PYTHONPATH.
	PythonPath func(folder string) (string, error)
}

var (
	_ cluster.Backend       = (*Backend)(nil)
	_ cluster.RemoteEngine  = (*Backend)(nil)
	_ cluster.AgentLogs     = (*allocation)(nil)
	_ cluster.SessionSharer = (*allocation)(nil)
	_ cluster.HostAvoider   = (*allocation)(nil)
	_ cluster.HostLister    = (*allocation)(nil)
)

// FailureDetectionDelay implements cluster.RemoteEngine. It is 0: Spark does not notice the end
// of an agent, because its stage has ended.
func (b *Backend) FailureDetectionDelay() time.Duration { return 0 }

// InitialStatus implements cluster.RemoteEngine.
func (b *Backend) InitialStatus(r *clusterpb.ReserveRequest) string {
	switch master := masterOf(r); {
	case onNotebookSession(r) && r.GetEngine()[engineSession] == r.GetEngine()[engineIdentity]:
		return "waiting for the SparkSession given to reserve"
	case onNotebookSession(r):
		return "waiting for the notebook's SparkSession " + r.GetEngine()[engineSession]
	case master != "":
		return "creating a Spark session at " + master
	}
	return "creating a Spark session"
}

// Allocate waits for the session, checks it and has agents started. It returns once Spark has
// accepted the request; the error of a session is one line.
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

// Recover reconnects to the session of the last driver. Living agents join by themselves; if
// the session has ended, so have they, and all are started again.
func (b *Backend) Recover(ctx context.Context, req cluster.Request, raw []byte) (cluster.Allocation, error) {
	var old saved
	if err := json.Unmarshal(raw, &old); err != nil {
		return nil, fmt.Errorf("this version of tfcluster cannot read what the last driver saved of its Spark session: %w",
			err)
	}
	a, err := newAllocation(b, req, old)
	if err != nil {
		return nil, err
	}
	kept, err := a.reconnect(ctx)
	if err != nil {
		return nil, errors.Join(err, a.Release(ctx, cluster.Failed, ""))
	}
	if !kept {
		for _, e := range req.Executors {
			a.attempts[e.ID]++
			a.emit(cluster.Reallocated{Executor: e.ID, Attempt: a.attempts[e.ID]})
		}
		a.launch(a.all())
		return a, nil
	}
	for _, e := range req.Executors {
		a.emit(cluster.Granted{Executor: e.ID, Attempt: a.attempts[e.ID], Recovered: true})
	}
	return a, nil
}

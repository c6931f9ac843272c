package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/internal/proc"
)

// Backend starts agents on this machine.
type Backend struct {
	// CheckGPUs returns why this number of GPUs of this machine cannot be had, or nil.
	CheckGPUs func(ctx context.Context, count int) error
}

var (
	_ cluster.Backend   = (*Backend)(nil)
	_ cluster.AgentLogs = (*allocation)(nil)
)

// Allocate checks that this machine has the requested resources, and starts an agent for each executor.
func (b *Backend) Allocate(ctx context.Context, req cluster.Request) (cluster.Allocation, error) {
	if err := b.check(ctx, req); err != nil {
		return nil, err
	}
	a, err := newAllocation(req, "")
	if err != nil {
		return nil, err
	}
	for _, e := range req.Executors {
		if err := a.start(e.ID, 0); err != nil {
			return nil, errors.Join(err, a.Release(ctx, cluster.Failed, ""))
		}
	}
	return a, nil
}

// Recover adopts the running agents of a dead driver, and starts others in place of those that have ended.
func (b *Backend) Recover(ctx context.Context, req cluster.Request, saved []byte) (cluster.Allocation, error) {
	var old savedAllocation
	if err := json.Unmarshal(saved, &old); err != nil {
		return nil, fmt.Errorf("this version of tfcluster cannot read what the last driver saved of its executors: %w", err)
	}
	a, err := newAllocation(req, old.Runtime)
	if err != nil {
		return nil, err
	}
	for _, e := range req.Executors {
		left, ok := old.Agents[e.ID]
		if ok && left.Process.Alive() {
			a.adopt(e.ID, left)
			continue
		}
		a.emit(cluster.Reallocated{Executor: e.ID, Attempt: left.Attempt + 1})
		if err := a.start(e.ID, left.Attempt+1); err != nil {
			return nil, errors.Join(err, a.Release(ctx, cluster.Failed, ""))
		}
	}
	return a, nil
}

// check rejects a request that exceeds this machine's resources, with an error that contains them.
func (b *Backend) check(ctx context.Context, req cluster.Request) error {
	var cpus float64
	var memory int64
	var gpus int
	for _, e := range req.Executors {
		cpus += e.Each.GetCpus()
		memory += e.Each.GetMemoryBytes()
		gpus += int(e.Each.GetGpus())
	}
	if have := float64(runtime.NumCPU()); cpus > have {
		return fmt.Errorf("the tasks request %g CPUs together, this machine has %g: request fewer, "+
			"or omit --cpus to share them equally", cpus, have)
	}
	if have := proc.TotalMemory(); have > 0 && memory > have {
		return fmt.Errorf("the tasks request %.1f GB of memory together, this machine has %.1f GB: request less, "+
			"or omit --memory", float64(memory)/1e9, float64(have)/1e9)
	}
	if gpus > 0 { // here: each agent would wait for them, and be replaced in vain
		if err := b.CheckGPUs(ctx, gpus); err != nil {
			return fmt.Errorf("--gpus: %w", err)
		}
	}
	return nil
}

package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/tfcluster/tfcluster/cluster"
)

// engine is a backend whose answers a test chooses.
type engine struct {
	answer   chan error // what Allocate waits for
	events   chan cluster.Event
	mu       sync.Mutex
	replaced int    // guarded by mu
	logs     string // of each agent that did not come
	logError error  // guarded by mu: of Logs
	released bool   // guarded by mu
	stuck    error  // guarded by mu: what Release ends with
}

func (e *engine) Allocate(ctx context.Context, _ cluster.Request) (cluster.Allocation, error) {
	select {
	case err := <-e.answer:
		return e, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *engine) Recover(ctx context.Context, req cluster.Request, _ []byte) (cluster.Allocation, error) {
	return e.Allocate(ctx, req)
}
func (e *engine) ID() string                   { return "engine-1" }
func (e *engine) Events() <-chan cluster.Event { return e.events }
func (e *engine) Replace(context.Context, cluster.ExecutorID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replaced++
	return nil
}

func (e *engine) Logs(context.Context, cluster.ExecutorID) (io.ReadCloser, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logs == "" {
		return nil, cmp.Or(e.logError, fs.ErrNotExist)
	}
	return io.NopCloser(strings.NewReader(e.logs)), nil
}

func (e *engine) Saved() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Append(nil, e.replaced)
}

func (e *engine) Release(context.Context, cluster.FinalStatus, string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.released = true
	return e.stuck
}

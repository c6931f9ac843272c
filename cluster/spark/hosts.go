package spark

import (
	"context"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// hostTimeout bounds the wait for the session's process, which asks Spark's master.
const hostTimeout = 10 * time.Second

// AvoidHost implements cluster.HostAvoider: Spark replaces its executors on the host, which it would go on choosing
// until spark.network.timeout. Where it cannot, the replacement's events say what it waits for.
func (a *allocation) AvoidHost(ctx context.Context, id cluster.ExecutorID, host string) {
	a.mu.Lock()
	h := a.host
	a.mu.Unlock()
	if h == nil {
		return // the next launch makes another session, or says why it cannot
	}
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	var waits string
	if err := h.call(ctx, "avoid", map[string]any{"host": host}, &waits); err != nil {
		waits = fmt.Sprintf("Spark could not be asked to replace its executors on %s: %v", host, err)
	}
	if waits != "" {
		a.emit(cluster.Pending{Executor: id, Why: waits})
	}
}

// HostAnswers implements cluster.HostAvoider: Spark has no exclusion that could be ended.
func (a *allocation) HostAnswers(string) {}

// OtherHosts implements cluster.HostLister: the hosts on which Spark has executors, whose slots agents leave free.
func (a *allocation) OtherHosts(ctx context.Context, host string) (others []string, err error) {
	a.mu.Lock()
	h := a.host
	a.mu.Unlock()
	if h == nil {
		return nil, errHostGone
	}
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	return others, h.call(ctx, "hosts", map[string]any{"host": host}, &others)
}

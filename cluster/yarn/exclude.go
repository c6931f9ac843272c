package yarn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// maxFailures is the number of consecutive failed containers after which a node is excluded.
const maxFailures = 2

// notNodeFault are the exit statuses of containers that did not fail because of their node: the node was
// lost, the container was preempted or released, or it exceeded its memory.
var notNodeFault = map[int32]bool{-100: true, -102: true, -103: true, -104: true, -105: true, -106: true, -107: true}

// unjoinedNode returns the node of an executor's container if no agent has joined from it, or "". It is
// called with the allocation's mu held.
func (x *executor) unjoinedNode() string {
	if x.container == nil || x.joined {
		return ""
	}
	return x.container.GetNodeId().GetHost()
}

// AgentJoined records that the agent of an executor's attempt has joined, which resets the failures of its
// node, unless the agent is unfit.
func (a *allocation) AgentJoined(id cluster.ExecutorID, attempt int, unfit string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.executors[id]
	if x == nil || x.attempt != attempt || x.container == nil {
		return
	}
	if x.unfit = unfit; unfit == "" {
		x.joined = true
		delete(a.failures, x.container.GetNodeId().GetHost())
	}
}

// ClearExclusions allows every node again.
func (a *allocation) ClearExclusions() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.app.master; m != nil {
		m.Include(slices.Collect(maps.Keys(a.excluded))...)
	}
	clear(a.failures)
	clear(a.excluded)
	clear(a.avoided)
	a.beatNow()
}

// countFailure counts a failed container of a node. A node with maxFailures in a row is excluded, unless
// some executor would then fit on no node. It queries YARN, and returns after the answer or a timeout.
func (a *allocation) countFailure(node, cause string) {
	a.mu.Lock()
	a.failures[node]++
	a.mu.Unlock()
	n := 0
	failed := func() bool { n = a.failures[node]; return n >= maxFailures } // 0 if the user has reset the exclusions since
	if a.excludeIf(a.ctx, node, failed) {
		a.emit(cluster.Warning{
			Text: fmt.Sprintf("node %s is not used any longer, because %d containers in a row failed there; the last one: %s; "+
				"%%tfcluster reset allows the node again", node, n, cause),
		})
	}
}

// AvoidHost implements cluster.HostAvoider: it excludes the node of the executor's container at once, unless some
// executor would then fit on no node. YARN itself misses a node only after a timeout, of 10 minutes by default.
func (a *allocation) AvoidHost(ctx context.Context, id cluster.ExecutorID, host string) {
	a.mu.Lock()
	node := a.executors[id].container.GetNodeId().GetHost()
	if node != "" {
		a.avoided[host] = node
	}
	a.mu.Unlock()
	silent := func() bool { return a.avoided[host] == node } // the host may answer while YARN is asked
	if node == "" || !a.excludeIf(ctx, node, silent) {
		return
	}
	a.emit(cluster.Warning{
		Text: fmt.Sprintf(
			"node %s is not used any longer, because it does not answer; %%tfcluster reset allows the node again",
			node),
	})
}

// HostAnswers implements cluster.HostAvoider: it ends the exclusion of AvoidHost.
func (a *allocation) HostAnswers(host string) {
	a.mu.Lock()
	node := a.avoided[host]
	delete(a.avoided, host)
	ended := node != "" && a.excluded[node]
	if ended {
		delete(a.excluded, node)
		if m := a.app.master; m != nil {
			m.Include(node)
		}
		a.beatNow()
	}
	a.mu.Unlock()
	if ended {
		a.emit(cluster.StateChanged{})
	}
}

// excludeIf excludes a node, unless it is excluded, some executor would then fit on no node, or wanted, which is called
// with mu held, returns false. It queries YARN, and reports whether the node was excluded by this call.
func (a *allocation) excludeIf(ctx context.Context, node string, wanted func() bool) bool {
	for {
		a.mu.Lock()
		before, still := maps.Clone(a.excluded), wanted()
		a.mu.Unlock()
		if !still || before[node] || !a.dispensable(ctx, before, node) {
			return false
		}
		if a.exclude(node, before) {
			return true
		}
	}
}

// exclude asks YARN not to allocate containers on a node. It does nothing and returns false if the
// exclusions differ from before: two nodes that fail at once may be dispensable only one at a time.
func (a *allocation) exclude(node string, before map[string]bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !maps.Equal(a.excluded, before) {
		return false
	}
	a.excluded[node] = true
	if m := a.app.master; m != nil {
		m.Exclude(node)
	}
	a.beatNow()
	return true
}

// dispensable reports whether every executor fits on some running node other than node and the excluded
// ones. Only nodes with the executor's own label count: others may be reserved for other users.
func (a *allocation) dispensable(ctx context.Context, excluded map[string]bool, node string) bool {
	reports, err := a.nodeReports(ctx)
	if err != nil {
		return false // the next failure asks again
	}
	for _, e := range a.req.Executors {
		if !slices.ContainsFunc(reports, func(r *yarnpb.NodeReport) bool {
			host := r.GetNodeId().GetHost()
			return host != node && !excluded[host] && partition(r) == e.Each.GetNodeLabel() &&
				fits(resource(e.Each), r.GetCapability())
		}) {
			return false
		}
	}
	return true
}

// nodeReports asks YARN for its running nodes.
func (a *allocation) nodeReports(ctx context.Context) ([]*yarnpb.NodeReport, error) {
	ctx, cancel := context.WithTimeout(ctx, site.ReachLimit)
	defer cancel()
	client, err := protocol.NewClient(a.site.Conf, a.site.User, site.ReachLimit)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.NodeReports(ctx)
}

// partition returns a node's label, or "" if it has none.
func partition(r *yarnpb.NodeReport) string {
	return strings.Join(r.GetNodeLabels(), ",")
}

// excludedMessage returns the end of a pending request's message. It is called with mu held.
func (a *allocation) excludedMessage() string {
	switch names := slices.Sorted(maps.Keys(a.excluded)); len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; node %s is excluded", names[0])
	default:
		return fmt.Sprintf("; nodes %s are excluded", strings.Join(names, ", "))
	}
}

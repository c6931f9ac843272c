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

// mostStrikes is how many containers of a node in a row may come to nothing.
const mostStrikes = 2

// others are the exit statuses of containers for which their node is not to blame: it is
// lost, the container was taken back, or it was too small for its process.
var others = map[int32]bool{-100: true, -102: true, -103: true, -104: true, -105: true, -106: true, -107: true}

// useless is the node of an executor's container if no agent came from it, or "". It is
// called with the allocation's mu held.
func (x *executor) useless() string {
	if x.container == nil || x.came {
		return ""
	}
	return x.container.GetNodeId().GetHost()
}

// AgentJoined says that the agent of an executor's attempt is here: its node is fit for agents,
// unless that one is not.
func (a *allocation) AgentJoined(id cluster.ExecutorID, attempt int, unfit string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.executors[id]
	if x == nil || x.attempt != attempt || x.container == nil {
		return
	}
	if x.unfit = unfit; unfit == "" {
		x.came = true
		delete(a.strikes, x.container.GetNodeId().GetHost())
	}
}

// ClearExclusions has every node asked again.
func (a *allocation) ClearExclusions() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.app.master; m != nil {
		m.Include(slices.Collect(maps.Keys(a.leftOut))...)
	}
	clear(a.strikes)
	clear(a.leftOut)
	a.rouse()
}

// strike counts a container of a node that came to nothing. A node of which that is said
// too often is left out, unless some executor could then be nowhere. It asks YARN, and
// returns when that has answered, or not in time.
func (a *allocation) strike(node, cause string) {
	a.mu.Lock()
	a.strikes[node]++
	n := a.strikes[node]
	a.mu.Unlock()
	for {
		a.mu.Lock()
		before := maps.Clone(a.leftOut)
		enough := a.strikes[node] >= mostStrikes // also after a person's reset
		a.mu.Unlock()
		if !enough || before[node] || !a.dispensable(before, node) {
			return
		}
		if a.leaveOut(node, before) {
			break
		}
	}
	a.tell(cluster.Warning{Text: fmt.Sprintf("node %s is left out: %d containers there came to nothing, the last: %s; %%tfcluster reset asks for it again", node, n, cause)})
}

// leaveOut has YARN give nothing on a node, unless others are left out than before: two
// that are struck at once may not be dispensable together.
func (a *allocation) leaveOut(node string, before map[string]bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !maps.Equal(a.leftOut, before) {
		return false
	}
	a.leftOut[node] = true
	if m := a.app.master; m != nil {
		m.Exclude(node)
	}
	a.rouse()
	return true
}

// dispensable is whether every executor fits on some node that runs beside one and those
// that are left out. A node of another label may be somebody else's alone.
func (a *allocation) dispensable(leftOut map[string]bool, node string) bool {
	ctx, cancel := context.WithTimeout(a.ctx, site.ReachLimit)
	defer cancel()
	client, err := protocol.NewClient(a.site.Conf, a.site.User, site.ReachLimit)
	if err != nil {
		return false
	}
	defer client.Close()
	reports, err := client.NodeReports(ctx)
	if err != nil {
		return false // asked again after the next one
	}
	for _, e := range a.req.Executors {
		if !slices.ContainsFunc(reports, func(r *yarnpb.NodeReport) bool {
			host := r.GetNodeId().GetHost()
			return host != node && !leftOut[host] && partition(r) == e.Each.GetNodeLabel() && fits(resource(e.Each), r.GetCapability())
		}) {
			return false
		}
	}
	return true
}

// partition is a node's label, "" for none.
func partition(r *yarnpb.NodeReport) string {
	return strings.Join(r.GetNodeLabels(), ",")
}

// leftOutWords end what is said of a wish that waits. It is called with mu held.
func (a *allocation) leftOutWords() string {
	switch names := slices.Sorted(maps.Keys(a.leftOut)); len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; node %s is left out", names[0])
	default:
		return fmt.Sprintf("; nodes %s are left out", strings.Join(names, ", "))
	}
}

package yarn

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// patience is how long a container is waited for without a word.
const patience = time.Second

// pend tells those that wait for a container why, where that is another reason than
// before. It calls why with mu held.
func (a *allocation) pend(why func(*executor) string) {
	a.mu.Lock()
	var pending []cluster.Event
	for id, x := range a.executors {
		if x.wish == 0 || time.Since(x.since) < patience {
			continue
		}
		if w := why(x); w != x.why {
			x.why = w
			pending = append(pending, cluster.Pending{Executor: id, Why: w})
		}
	}
	a.mu.Unlock()
	for _, e := range pending {
		a.tell(e)
	}
}

// waitingWords say what an executor waits for, and what the queue has left for it.
func waitingWords(x *executor, queue string, left *yarnpb.Resource) string {
	need, label := resource(x.request.Each), x.request.Each.GetNodeLabel()
	if label == "" && fits(need, left) {
		return fmt.Sprintf("no node has %s free (queue %s has %s left)", describeResource(need), queue, describeResource(left))
	}
	words := fmt.Sprintf("queue %s has %s left, it needs %s", queue, describeResource(left), describeResource(need))
	if label != "" {
		words += " on a node labelled " + label
	}
	return words
}

// fits is whether there is as much as is needed.
func fits(need, have *yarnpb.Resource) bool {
	return need.GetMemory() <= have.GetMemory() && need.GetVirtualCores() <= have.GetVirtualCores() && gpus(need) <= gpus(have)
}

// describeResource is for people.
func describeResource(r *yarnpb.Resource) string {
	words := fmt.Sprintf("%d MiB and %d vcores", r.GetMemory(), r.GetVirtualCores())
	if n := gpus(r); n > 0 {
		words += fmt.Sprintf(" and %d GPUs", n)
	}
	return words
}

// admissionWords say why an application has no master yet.
func admissionWords(id, queue, diagnostics string) string {
	said, _, _ := strings.Cut(strings.TrimSpace(diagnostics), "\n")
	if said == "" {
		return fmt.Sprintf("%s waits to begin in queue %s", id, queue)
	}
	return fmt.Sprintf("%s waits to begin in queue %s: %s", id, queue, said)
}

// askQueue is how often the queue is asked while it gives nothing.
const askQueue = 5 * time.Second

// heldBack finds out whether the scheduler has let the application begin. One that it
// has not is offered nothing, and YARN says nowhere why: CapacityScheduler lets as many
// begin as may have an ApplicationMaster, and counts those that are not managed too.
func (a *allocation) heldBack(left *yarnpb.Resource) {
	a.mu.Lock()
	waits, has := false, false
	for _, x := range a.executors {
		has = has || x.container != nil
		waits = waits || (x.wish != 0 && time.Since(x.since) > patience)
	}
	a.mu.Unlock()
	if has || !waits || left.GetMemory() > 0 || left.GetVirtualCores() > 0 {
		a.held = ""
		return
	}
	if time.Since(a.asked) < askQueue {
		return
	}
	a.asked = time.Now()
	client, err := protocol.NewClient(a.site.Conf, a.site.User, site.ReachLimit)
	if err != nil {
		return // what YARN says otherwise has to do
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(a.ctx, site.ReachLimit)
	defer cancel()
	if q, err := client.Queue(ctx, queue(a.req)); err == nil {
		a.held = heldWords(queue(a.req), q.GetQueueStatistics().GetNumAppsPending())
	}
}

// heldWords are for an application that is among those that may not begin.
func heldWords(queue string, pending int64) string {
	if pending == 0 {
		return ""
	}
	return fmt.Sprintf("queue %s runs as many applications as its limits allow (maximum-am-resource-percent, max-parallel-apps) and holds %d back; one that ends makes place", queue, pending)
}

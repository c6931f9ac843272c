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

// pendingDelay is how long a request may be pending before the reason is reported.
const pendingDelay = time.Second

// reportPending reports why requests are pending, if the reason has changed. It calls why with mu held.
func (a *allocation) reportPending(why func(*executor) string) {
	a.mu.Lock()
	var events []cluster.Event
	for id, x := range a.executors {
		if x.requestID == 0 || time.Since(x.requestedAt) < pendingDelay {
			continue
		}
		if w := why(x); w != x.pendingReason {
			x.pendingReason = w
			events = append(events, cluster.Pending{Executor: id, Why: w})
		}
	}
	a.mu.Unlock()
	a.emit(events...)
}

// pendingMessage returns what an executor waits for, and what its queue has left.
func pendingMessage(x *executor, queue string, left *yarnpb.Resource) string {
	need, label := resource(x.request.Each), x.request.Each.GetNodeLabel()
	if label == "" && fits(need, left) {
		return fmt.Sprintf("no node has %s free (queue %s has %s left)", describeResource(need), queue,
			describeResource(left))
	}
	message := fmt.Sprintf("queue %s has %s left, it needs %s", queue, describeResource(left), describeResource(need))
	if label != "" {
		message += " on a node labelled " + label
	}
	return message
}

// fits reports whether a resource is at least as large as needed.
func fits(need, have *yarnpb.Resource) bool {
	return need.GetMemory() <= have.GetMemory() && need.GetVirtualCores() <= have.GetVirtualCores() &&
		gpus(need) <= gpus(have)
}

// describeResource formats a resource for messages.
func describeResource(r *yarnpb.Resource) string {
	text := fmt.Sprintf("%d MiB and %d vcores", r.GetMemory(), r.GetVirtualCores())
	if n := gpus(r); n > 0 {
		text += fmt.Sprintf(" and %d GPUs", n)
	}
	return text
}

// admissionMessage returns why an application has no master yet.
func admissionMessage(id, queue, diagnostics string) string {
	reason, _, _ := strings.Cut(strings.TrimSpace(diagnostics), "\n")
	if reason == "" {
		return fmt.Sprintf("%s waits in queue %s", id, queue)
	}
	return fmt.Sprintf("%s waits in queue %s: %s", id, queue, reason)
}

// queueInterval is how often the queue's state is read while the application gets nothing.
const queueInterval = 5 * time.Second

// checkActivation finds out whether the scheduler has activated the application. An application that is
// not activated gets no containers, and YARN does not report the reason: CapacityScheduler limits the number
// of active applications by the resources of their ApplicationMasters, and counts unmanaged ones too.
func (a *allocation) checkActivation(left *yarnpb.Resource) {
	a.mu.Lock()
	waiting, holds := false, false
	for _, x := range a.executors {
		holds = holds || x.container != nil
		waiting = waiting || (x.requestID != 0 && time.Since(x.requestedAt) > pendingDelay)
	}
	a.mu.Unlock()
	if holds || !waiting || left.GetMemory() > 0 || left.GetVirtualCores() > 0 {
		a.inactive = ""
		return
	}
	if time.Since(a.queueRead) < queueInterval {
		return
	}
	a.queueRead = time.Now()
	client, err := protocol.NewClient(a.site.Conf, a.site.User, site.ReachLimit)
	if err != nil {
		return // the message without the queue's state is used
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(a.ctx, site.ReachLimit)
	defer cancel()
	if q, err := client.Queue(ctx, queue(a.req)); err == nil {
		a.inactive = inactiveMessage(queue(a.req), q.GetQueueStatistics().GetNumAppsPending())
	}
}

// inactiveMessage returns why the scheduler has not activated the application, or "" if no application of
// the queue is pending.
func inactiveMessage(queue string, pending int64) string {
	if pending == 0 {
		return ""
	}
	return fmt.Sprintf("queue %s runs as many applications as its limits allow (maximum-am-resource-percent, "+
		"max-parallel-apps) and %d wait; the next starts when one of them ends", queue, pending)
}

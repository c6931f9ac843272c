package yarn

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
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

// dated begins what the scheduler says of an application that waits.
var dated = regexp.MustCompile(`^\[[^\]]*\]\s*`)

// admissionWords say why the scheduler does not let an application begin yet.
func admissionWords(id, queue, diagnostics string) string {
	said, _, _ := strings.Cut(strings.TrimSpace(dated.ReplaceAllString(strings.TrimSpace(diagnostics), "")), "\n")
	switch {
	case strings.Contains(said, "User's AM resource limit exceeded"):
		return fmt.Sprintf("%s waits: you have as many applications in queue %s as its limit for ApplicationMasters allows a user; one that ends makes place", id, queue)
	case strings.Contains(said, "AM resource limit exceeded"):
		return fmt.Sprintf("%s waits: queue %s runs as many applications as its limit for ApplicationMasters allows (maximum-am-resource-percent); one that ends makes place", id, queue)
	case strings.Contains(said, "cluster resource is empty"):
		return id + " waits: no NodeManager runs"
	case said == "":
		return fmt.Sprintf("%s waits to begin in queue %s", id, queue)
	}
	return fmt.Sprintf("%s waits to begin in queue %s: %s", id, queue, said)
}

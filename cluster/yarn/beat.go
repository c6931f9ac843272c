package yarn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Heartbeats are close together when something was asked for, and then ever further
// apart.
const (
	shortBeat = 50 * time.Millisecond
	longBeat  = time.Second
)

// beat calls the ResourceManager until the allocation is released or is gone.
func (a *allocation) beat() {
	for pause := shortBeat; ; {
		b, err := a.master.Allocate(a.ctx, 0)
		switch {
		case a.ctx.Err() != nil:
			return
		case errors.Is(err, protocol.ErrTooLarge), errors.Is(err, protocol.ErrLabel), errors.Is(err, protocol.ErrQueue):
			a.refused(err)
		case err != nil:
			a.gone(err)
			return
		default:
			a.heard(b)
		}
		select {
		case <-a.ctx.Done():
			return
		case <-a.wake:
			pause = shortBeat
		case <-time.After(pause):
			pause = min(pause*5/4, longBeat)
		}
	}
}

// heard takes what a heartbeat brought.
func (a *allocation) heard(b protocol.Beat) {
	a.nodes.Tokens(b.GetNmTokens())
	if b.Resynced != nil {
		a.nodes.Tokens(b.Resynced.GetNmTokensFromPreviousAttempts())
	}
	for _, c := range b.GetAllocatedContainers() {
		a.given(c)
	}
	for _, s := range b.GetCompletedContainerStatuses() {
		a.ended(s)
	}
	if b.Renewed {
		a.renewed()
	}
	a.waiting(b.GetLimit())
}

// patience is how long a container is waited for without a word.
const patience = time.Second

// waiting tells of those that wait, for what, and what the queue has left for them.
func (a *allocation) waiting(left *yarnpb.Resource) {
	a.mu.Lock()
	var pending []cluster.Event
	for id, x := range a.executors {
		if x.wish == 0 || time.Since(x.since) < patience {
			continue
		}
		why := fmt.Sprintf("queue %s has %s left, it needs %s", queue(a.req), describeResource(left), describeResource(resource(x.request.Each)))
		if l := x.request.Each.GetNodeLabel(); l != "" {
			why += " on a node labelled " + l
		}
		if why != x.why {
			x.why = why
			pending = append(pending, cluster.Pending{Executor: id, Why: why})
		}
	}
	a.mu.Unlock()
	for _, e := range pending {
		a.tell(e)
	}
}

// describeResource is for people.
func describeResource(r *yarnpb.Resource) string {
	words := fmt.Sprintf("%d MiB and %d vcores", r.GetMemory(), r.GetVirtualCores())
	if n := gpus(r); n > 0 {
		words += fmt.Sprintf(" and %d GPUs", n)
	}
	return words
}

// given starts an agent in a container, or gives it back where nobody waits for it.
func (a *allocation) given(c *yarnpb.Container) {
	a.mu.Lock()
	var x *executor
	for _, e := range a.executors {
		if e.wish != 0 && e.wish == c.GetAllocationRequestId() {
			x = e
		}
	}
	if x == nil {
		a.mu.Unlock()
		a.master.Release(c.GetId())
		return
	}
	x.wish, x.container, x.last, x.web = 0, c, c.GetId(), c.GetNodeHttpAddress()
	id, attempt := x.request.ID, x.attempt
	a.mu.Unlock()
	a.tell(cluster.Granted{Executor: id, Attempt: attempt, Host: c.GetNodeId().GetHost()})
	a.work.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, startLimit)
		defer cancel()
		if err := a.launch(ctx, id, attempt, c); err != nil {
			a.lose(c.GetId(), err.Error())
			a.master.Release(c.GetId())
		}
	})
}

// ended tells of a container's end, unless it was asked for.
func (a *allocation) ended(s *yarnpb.ContainerStatus) { a.lose(s.GetContainerId(), exitWords(s)) }

func (a *allocation) lose(container *yarnpb.ContainerId, cause string) {
	name := protocol.ContainerName(container)
	a.mu.Lock()
	var lost cluster.Event
	for id, x := range a.executors {
		if x.container != nil && protocol.ContainerName(x.container.GetId()) == name {
			x.container = nil
			lost = cluster.Lost{Executor: id, Attempt: x.attempt, Cause: cause}
		}
	}
	a.mu.Unlock()
	if lost != nil {
		a.tell(lost)
	}
}

// refused tells those that wait that YARN will not give what they wait for.
func (a *allocation) refused(err error) {
	a.mu.Lock()
	var lost []cluster.Event
	for id, x := range a.executors {
		if x.wish != 0 {
			a.giveBack(x)
			lost = append(lost, cluster.Lost{Executor: id, Attempt: x.attempt, Cause: err.Error()})
		}
	}
	a.mu.Unlock()
	for _, e := range lost {
		a.tell(e)
	}
}

// gone tells everybody that the application has ended under them.
func (a *allocation) gone(err error) {
	cause := err.Error()
	if errors.Is(err, protocol.ErrGone) {
		cause = a.whyGone()
	}
	a.mu.Lock()
	var lost []cluster.Event
	for id, x := range a.executors {
		x.container, x.wish = nil, 0
		lost = append(lost, cluster.Lost{Executor: id, Attempt: x.attempt, Cause: cause})
	}
	a.mu.Unlock()
	for _, e := range lost {
		a.tell(e)
	}
}

// whyGone asks for what YARN says of the application's end.
func (a *allocation) whyGone() string {
	ctx, cancel := context.WithTimeout(a.ctx, reachLimit)
	defer cancel()
	client, err := protocol.NewClient(a.site.conf, a.site.user, reachLimit)
	if err != nil {
		return err.Error()
	}
	defer client.Close()
	r, err := client.Report(ctx, a.id)
	if err != nil {
		return err.Error()
	}
	why, _, _ := strings.Cut(strings.TrimSpace(r.GetDiagnostics()), "\n")
	return fmt.Sprintf("its application %s is %s: %s", a.ID(), strings.ToLower(r.GetYarnApplicationState().String()), why)
}

// renewed has the state saved, which holds a new token: it is whenever something was
// granted.
func (a *allocation) renewed() {
	a.mu.Lock()
	var again cluster.Event
	for id, x := range a.executors {
		if x.container != nil {
			again = cluster.Granted{Executor: id, Attempt: x.attempt, Host: x.container.GetNodeId().GetHost()}
		}
	}
	a.mu.Unlock()
	if again != nil {
		a.tell(again)
	}
}

// Exit statuses that are YARN's own.
var yarnsOwn = map[int32]string{
	-1000: "its node could not prepare its container",
	-100:  "its node was lost, or took the container back",
	-101:  "the disks of its node are full or broken",
	-102:  "YARN gave its container to another application (preempted)",
	-103:  "it used more virtual memory than its container may: ask for more memory",
	-104:  "it used more memory than its container may: ask for more memory",
	-105:  "its container was released",
	-106:  "its container was ended by the ResourceManager",
	-107:  "its application had ended",
}

// stamp begins a line of a NodeManager's diagnostics.
var stamp = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d [\d:.]+\]`)

// exitWords say why a container ended.
func exitWords(s *yarnpb.ContainerStatus) string {
	words, ok := yarnsOwn[s.GetExitStatus()]
	if !ok {
		words = fmt.Sprintf("its agent ended with code %d", s.GetExitStatus())
		if s.GetExitStatus() > 128 {
			words = fmt.Sprintf("its agent was killed by signal %d", s.GetExitStatus()-128)
		}
	}
	for line := range strings.Lines(s.GetDiagnostics()) {
		if line = strings.TrimSpace(stamp.ReplaceAllString(line, "")); line != "" {
			return words + ": " + line
		}
	}
	return words
}

package yarn

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Heartbeats follow each other quickly after a container was requested, until it is allocated: a node with
// free resources reports them with its own next heartbeat, which is expected within initialPeriod. After
// that the interval grows, since each heartbeat costs the ResourceManager time that it needs to start
// containers.
const (
	initialInterval = 10 * time.Millisecond
	initialPeriod   = 200 * time.Millisecond
	shortInterval   = 20 * time.Millisecond
	shortPeriod     = time.Second
	idleInterval    = 200 * time.Millisecond
	maxInterval     = time.Second
)

// heartbeatInterval returns the time until the next heartbeat. pause is the last interval, pending reports
// whether a container is requested, and since is the time since the last request.
func heartbeatInterval(pause time.Duration, pending bool, since time.Duration) time.Duration {
	switch {
	case !pending:
		pause = max(pause, idleInterval)
	case since < initialPeriod:
		return initialInterval
	case since < shortPeriod:
		return shortInterval
	}
	return min(pause*5/4, maxInterval)
}

// unknownErrorLimit is how long a ResourceManager may answer with unknown exceptions. One that restarts
// or fails over does so for a while.
const unknownErrorLimit = time.Minute

// Classes of a heartbeat's error.
const (
	transient = iota // no error, or the ResourceManager is unreachable
	refusal          // YARN rejects the requests
	final            // this master cannot go on
	unknown          // another exception
)

func classify(err error) int {
	is := func(these ...error) bool {
		return slices.ContainsFunc(these, func(one error) bool { return errors.Is(err, one) })
	}
	switch {
	case err == nil, is(protocol.ErrUnreachable):
		return transient
	case is(protocol.ErrTooLarge, protocol.ErrLabel, protocol.ErrQueue):
		return refusal
	case is(protocol.ErrGone, protocol.ErrReplaced, protocol.ErrRegistered, protocol.ErrPermission):
		return final
	}
	return unknown
}

// heartbeatLoop sends heartbeats to the ResourceManager until the application is gone or another permanent
// error occurs. It keeps calling one that does not answer: the containers keep running.
func (a *allocation) heartbeatLoop() error {
	app := a.current()
	var unknownSince time.Time // when the first of consecutive unknown errors occurred; zero if there is none
	asked := time.Now()
	for pause := initialInterval; ; {
		b, err := app.master.Allocate(a.ctx, a.progress())
		if a.ctx.Err() != nil {
			return a.ctx.Err()
		}
		switch class := classify(err); {
		case class == refusal:
			a.failRequests(err)
		case class == final || class == unknown && !unknownSince.IsZero() && time.Since(unknownSince) > unknownErrorLimit:
			return err
		case err != nil:
			a.reportPending(func(*executor) string { return err.Error() })
		default:
			a.handleHeartbeat(app, b)
		}
		if classify(err) != unknown {
			unknownSince = time.Time{}
		} else if unknownSince.IsZero() {
			unknownSince = time.Now()
		}
		_, lacks, _ := a.counts()
		pause = heartbeatInterval(pause, lacks > 0, time.Since(asked))
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-a.wake:
			pause, asked = initialInterval, time.Now()
		case <-time.After(pause):
		}
	}
}

// ofEndedApplication is YARN's text about a container whose application has ended
// (SchedulerUtils.COMPLETED_APPLICATION). A heartbeat may report the container first; the next one reports the
// application's end, and why.
const ofEndedApplication = "Container of a completed application"

// handleHeartbeat handles the response to a heartbeat.
func (a *allocation) handleHeartbeat(app application, b protocol.Heartbeat) {
	app.nodes.Tokens(b.GetNmTokens())
	if b.Resynced != nil {
		app.nodes.Tokens(b.Resynced.GetNmTokensFromPreviousAttempts())
	}
	for _, c := range b.GetAllocatedContainers() {
		a.handleAllocated(app, c)
	}
	for _, s := range b.GetCompletedContainerStatuses() {
		if s.GetDiagnostics() != ofEndedApplication {
			a.handleCompleted(s)
		}
	}
	if b.Renewed { // the saved state has another token
		a.emit(cluster.StateChanged{})
	}
	a.checkActivation(b.GetLimit())
	backOff := a.backOff(app, time.Now())
	a.reportPending(func(x *executor) string {
		switch {
		case !a.backoff.Until.IsZero():
			return backOff
		case a.inactive != "":
			return a.inactive
		case backOff != "":
			return pendingMessage(x, queue(a.req), b.GetLimit()) + "; " + backOff
		}
		return pendingMessage(x, queue(a.req), b.GetLimit()) + a.excludedMessage()
	})
}

// handleAllocated starts an agent in an allocated container. A container for which there is no pending
// request is released.
func (a *allocation) handleAllocated(app application, c *yarnpb.Container) {
	a.mu.Lock()
	var x *executor
	for _, e := range a.executors {
		if e.requestID != 0 && e.requestID == c.GetAllocationRequestId() {
			x = e
		}
	}
	if x == nil {
		a.mu.Unlock()
		app.master.Release(c.GetId())
		return
	}
	x.requestID, x.container, x.lastContainer, x.web, x.launched = 0, c, c.GetId(), c.GetNodeHttpAddress(), time.Now()
	id, attempt := x.request.ID, x.attempt
	a.addContainer(x, c)
	delete(a.app.near, id) // a later container may run on any node
	a.countWhole()
	a.mu.Unlock()
	a.emit(cluster.Granted{Executor: id, Attempt: attempt, Host: c.GetNodeId().GetHost()})
	a.work.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, startLimit)
		defer cancel()
		if err := a.launch(ctx, app, id, attempt, c); err != nil {
			a.reportLost(c.GetId(), cluster.Lost{By: cluster.LostByError, Cause: startError(err)}, true)
			app.master.Release(c.GetId())
		}
	})
}

// handleCompleted reports a completed container. One that this master released is not reported.
func (a *allocation) handleCompleted(s *yarnpb.ContainerStatus) {
	cause, lastLines := exitCause(s), containerlogs.LastLines(s.GetDiagnostics())
	if s.GetExitStatus() == UnreachableCode {
		var terminated bool
		if cause, terminated = a.handleUnreachable(s); terminated {
			a.emit(cluster.Terminated{Cause: cause})
		}
	}
	a.reportLost(s.GetContainerId(), cluster.Lost{By: lostBy(s.GetExitStatus()), Cause: cause, LastLines: lastLines},
		!notNodeFault[s.GetExitStatus()])
}

// reportLost reports that an executor has lost its container; it sets the executor and the attempt of lost. If blamed
// is set and no agent joined from the container, it counts as a failure of its node.
func (a *allocation) reportLost(container *yarnpb.ContainerId, lost cluster.Lost, blamed bool) {
	name := protocol.ContainerName(container)
	a.mu.Lock()
	node := ""
	for id, x := range a.executors {
		if x.container != nil && protocol.ContainerName(x.container.GetId()) == name {
			if blamed {
				node = x.unjoinedNode()
			}
			x.container = nil
			lost.Executor, lost.Attempt = id, x.attempt
		}
	}
	a.mu.Unlock()
	if node != "" { // before the event, which leads to another request
		a.countFailure(node, lost.Cause)
	}
	if lost.Executor != "" {
		a.emit(lost)
	}
}

// failRequests reports every executor with a pending request as lost: YARN rejects the requests.
func (a *allocation) failRequests(err error) {
	a.mu.Lock()
	var lost []cluster.Event
	for id, x := range a.executors {
		if x.requestID != 0 {
			a.releaseContainer(x)
			lost = append(lost, cluster.Lost{Executor: id, Attempt: x.attempt, By: cluster.LostByError, Cause: err.Error()})
		}
	}
	a.mu.Unlock()
	a.emit(lost...)
}

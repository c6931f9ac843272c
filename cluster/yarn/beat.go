package yarn

import (
	"context"
	"errors"
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

// beat calls the ResourceManager until the application is gone, or something else is
// wrong that does not pass. One that does not answer is called on: the containers live.
func (a *allocation) beat() error {
	app := a.current()
	for pause := shortBeat; ; {
		b, err := app.master.Allocate(a.ctx, 0)
		switch {
		case a.ctx.Err() != nil:
			return a.ctx.Err()
		case errors.Is(err, protocol.ErrTooLarge), errors.Is(err, protocol.ErrLabel), errors.Is(err, protocol.ErrQueue):
			a.refused(err)
		case errors.Is(err, protocol.ErrUnreachable):
			a.pend(func(*executor) string { return err.Error() })
		case err != nil:
			return err
		default:
			a.heard(app, b)
		}
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-a.wake:
			pause = shortBeat
		case <-time.After(pause):
			pause = min(pause*5/4, longBeat)
		}
	}
}

// heard takes what a heartbeat brought.
func (a *allocation) heard(app application, b protocol.Beat) {
	app.nodes.Tokens(b.GetNmTokens())
	if b.Resynced != nil {
		app.nodes.Tokens(b.Resynced.GetNmTokensFromPreviousAttempts())
	}
	for _, c := range b.GetAllocatedContainers() {
		a.given(app, c)
	}
	for _, s := range b.GetCompletedContainerStatuses() {
		a.ended(s)
	}
	if b.Renewed {
		a.renewed()
	}
	a.heldBack(b.GetLimit())
	a.pend(func(x *executor) string {
		if a.held != "" {
			return a.held
		}
		return waitingWords(x, queue(a.req), b.GetLimit())
	})
}

// given starts an agent in a container, or gives it back where nobody waits for it.
func (a *allocation) given(app application, c *yarnpb.Container) {
	a.mu.Lock()
	var x *executor
	for _, e := range a.executors {
		if e.wish != 0 && e.wish == c.GetAllocationRequestId() {
			x = e
		}
	}
	if x == nil {
		a.mu.Unlock()
		app.master.Release(c.GetId())
		return
	}
	x.wish, x.container, x.last, x.web, x.launched = 0, c, c.GetId(), c.GetNodeHttpAddress(), time.Now()
	id, attempt := x.request.ID, x.attempt
	a.mu.Unlock()
	a.tell(cluster.Granted{Executor: id, Attempt: attempt, Host: c.GetNodeId().GetHost()})
	a.work.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, startLimit)
		defer cancel()
		if err := a.launch(ctx, app, id, attempt, c); err != nil {
			a.lose(c.GetId(), startWords(err))
			app.master.Release(c.GetId())
		}
	})
}

// ended tells of a container's end, unless it was asked for.
func (a *allocation) ended(s *yarnpb.ContainerStatus) {
	cause := exitWords(s)
	if s.GetExitStatus() == UnreachableCode {
		var over bool
		if cause, over = a.cutOff(s); over {
			a.tell(cluster.Over{Cause: cause})
		}
	}
	a.lose(s.GetContainerId(), cause)
}

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

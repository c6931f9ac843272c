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

// Heartbeats are close together for a while when something was asked for, until it is given:
// nodes that have room offer it with their next heartbeats, of which one is expected within
// firstBeats. Else they are ever further apart, since each costs the ResourceManager what
// containers that start would need.
const (
	firstBeat  = 10 * time.Millisecond
	firstBeats = 200 * time.Millisecond
	shortBeat  = 20 * time.Millisecond
	shortBeats = time.Second
	givenBeat  = 200 * time.Millisecond
	longBeat   = time.Second
)

// beatPause is the time to the next heartbeat: by the last one, whether something is
// wished for, and the time since that was asked for.
func beatPause(pause time.Duration, wishing bool, since time.Duration) time.Duration {
	switch {
	case !wishing:
		pause = max(pause, givenBeat)
	case since < firstBeats:
		return firstBeat
	case since < shortBeats:
		return shortBeat
	}
	return min(pause*5/4, longBeat)
}

// wishing is whether a container is still to be given.
func (a *allocation) wishing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.executors {
		if x.wish != 0 {
			return true
		}
	}
	return false
}

// oddLimit is how long a ResourceManager may answer by what is no refusal that we know:
// one that is being restarted, or that fails over, does so for a while.
const oddLimit = time.Minute

// What a heartbeat's error means.
const (
	passing = iota // none, or the ResourceManager is away
	refusal        // what is wished for is not given
	last           // the ResourceManager's last word to this master
	strange        // another exception
)

func meaning(err error) int {
	is := func(these ...error) bool {
		return slices.ContainsFunc(these, func(one error) bool { return errors.Is(err, one) })
	}
	switch {
	case err == nil, is(protocol.ErrUnreachable):
		return passing
	case is(protocol.ErrTooLarge, protocol.ErrLabel, protocol.ErrQueue):
		return refusal
	case is(protocol.ErrGone, protocol.ErrReplaced, protocol.ErrRegistered, protocol.ErrPermission):
		return last
	}
	return strange
}

// beat calls the ResourceManager until the application is gone, or something else is
// wrong that does not pass. One that does not answer is called on: the containers live.
func (a *allocation) beat() error {
	app := a.current()
	var odd time.Time // the first of such answers in a row; zero for none
	asked := time.Now()
	for pause := firstBeat; ; {
		b, err := app.master.Allocate(a.ctx, a.progress())
		if a.ctx.Err() != nil {
			return a.ctx.Err()
		}
		switch answer := meaning(err); {
		case answer == refusal:
			a.refused(err)
		case answer == last || answer == strange && !odd.IsZero() && time.Since(odd) > oddLimit:
			return err
		case err != nil:
			a.pend(func(*executor) string { return err.Error() })
		default:
			a.heard(app, b)
		}
		if meaning(err) != strange {
			odd = time.Time{}
		} else if odd.IsZero() {
			odd = time.Now()
		}
		pause = beatPause(pause, a.wishing(), time.Since(asked))
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-a.wake:
			pause, asked = firstBeat, time.Now()
		case <-time.After(pause):
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
	if b.Renewed { // another token
		a.tell(cluster.StateChanged{})
	}
	a.heldBack(b.GetLimit())
	backOff := a.backOff(app, time.Now())
	a.pend(func(x *executor) string {
		switch {
		case !a.backoff.Until.IsZero():
			return backOff
		case a.held != "":
			return a.held
		case backOff != "":
			return waitingWords(x, queue(a.req), b.GetLimit()) + "; " + backOff
		}
		return waitingWords(x, queue(a.req), b.GetLimit()) + a.leftOutWords()
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
	a.used(x, c)
	delete(a.app.near, id) // another is wherever there is room
	a.countWhole()
	a.mu.Unlock()
	a.tell(cluster.Granted{Executor: id, Attempt: attempt, Host: c.GetNodeId().GetHost()})
	a.work.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, startLimit)
		defer cancel()
		if err := a.launch(ctx, app, id, attempt, c); err != nil {
			a.lose(c.GetId(), startWords(err), true)
			app.master.Release(c.GetId())
		}
	})
}

// ended tells of a container's end, unless it was asked for.
func (a *allocation) ended(s *yarnpb.ContainerStatus) {
	cause, said := exitWords(s), containerlogs.LastLines(s.GetDiagnostics())
	if s.GetExitStatus() == UnreachableCode {
		var over bool
		if cause, over = a.cutOff(s); over {
			a.tell(cluster.Terminated{Cause: cause})
		}
	}
	a.lose(s.GetContainerId(), cause, !others[s.GetExitStatus()], said...)
}

// lose tells that an executor's container is gone; said is what it wrote last. blamed is
// whether that is its node's doing, where no agent has come from it.
func (a *allocation) lose(container *yarnpb.ContainerId, cause string, blamed bool, said ...string) {
	name := protocol.ContainerName(container)
	a.mu.Lock()
	var lost cluster.Event
	node := ""
	for id, x := range a.executors {
		if x.container != nil && protocol.ContainerName(x.container.GetId()) == name {
			if blamed {
				node = x.useless()
			}
			x.container = nil
			lost = cluster.Lost{Executor: id, Attempt: x.attempt, Cause: cause, LastLines: said}
		}
	}
	a.mu.Unlock()
	if node != "" { // before another container is asked for
		a.strike(node, cause)
	}
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

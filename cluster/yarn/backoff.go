package yarn

import (
	"context"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/gang"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
)

// applicationType is the YARN application type of this program's applications.
const applicationType = "TFCLUSTER"

// competitor asks YARN for another reservation that is partially filled, and describes it; "" if there is
// none.
func (a *allocation) competitor(app application) (string, error) {
	client, err := protocol.NewClient(a.site.Conf, a.site.User, site.ReachLimit)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(a.ctx, site.ReachLimit)
	defer cancel()
	running, err := client.Running(ctx, applicationType)
	if err != nil {
		return "", err
	}
	return gang.FindCompetitor(app.id, running), nil
}

// progress is the progress that the application reports to YARN: the part of its executors that have
// a container, and 1 once all of them had one. Competitors read it.
func (a *allocation) progress() float32 {
	held, _, b := a.counts()
	if b.Whole {
		return 1
	}
	return float32(held) / float32(len(a.executors))
}

// counts returns how many executors have a container and how many wait for one, and the back-off.
func (a *allocation) counts() (held, lacks int, b gang.Backoff) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.executors {
		if x.container != nil {
			held++
		} else if x.requestID != 0 {
			lacks++
		}
	}
	return held, lacks, a.backoff
}

// countWhole records whether every executor that a run needs to start has a container. It is called with
// mu held, before the event of the last container is sent.
func (a *allocation) countWhole() {
	spared := map[string]bool{}
	for _, r := range a.req.Reserve.GetRoles() {
		spared[r.GetName()] = a.backoff.Again && cluster.KindOf(r) == cluster.Sidecar
	}
	for _, x := range a.executors {
		if x.container == nil && !spared[x.request.Task.Role] {
			return
		}
	}
	a.backoff.Whole = true
}

// backOff releases the containers of a partially filled reservation when another one waits too, and asks
// for them again after the delay. It returns the next step for the status, or "".
func (a *allocation) backOff(app application, now time.Time) string {
	held, lacks, b := a.counts()
	switch {
	case now.Before(b.Until):
		return fmt.Sprintf("its containers were released for %s, which is partially filled too; it asks again in %s", b.For,
			gang.About(b.Until.Sub(now)))
	case !b.Until.IsZero():
		a.askAgain(app, now)
		return ""
	case b.Whole, held == 0, lacks == 0:
		a.gang.Reset()
		return ""
	}
	left, stuck := a.gang.Watch(now, held, func() (string, error) { return a.competitor(app) })
	switch {
	case !stuck:
		return ""
	case left > 0:
		return fmt.Sprintf("unless more containers come, it releases its %d of %d in %s for %s, "+
			"which is partially filled too, and asks again later",
			held, len(a.executors), gang.About(left), a.gang.Competitor())
	}
	a.emit(a.releaseAll(app, now, a.gang.Delay(b.Releases)))
	return ""
}

// releaseAll releases every container and withdraws every request, until the delay has passed.
func (a *allocation) releaseAll(app application, now time.Time, delay time.Duration) cluster.BackedOff {
	a.gang.Reset()
	a.mu.Lock()
	defer a.mu.Unlock()
	e := cluster.BackedOff{Attempts: map[cluster.ExecutorID]int{}}
	held := 0
	for id, x := range a.executors {
		if x.container != nil {
			held++
		}
		a.releaseContainer(x)
		a.nextAttempt(x, now)
		e.Attempts[id] = x.attempt
	}
	a.backoff.Releases++
	a.backoff.Until, a.backoff.For = now.Add(delay), a.gang.Competitor()
	e.Why = fmt.Sprintf("%s released its %d of %d containers for %s, which is partially filled too; it asks again in %s",
		protocol.ApplicationName(app.id), held, len(a.executors), a.backoff.For, gang.About(delay))
	return e
}

// askAgain asks for the containers again after a delay.
func (a *allocation) askAgain(app application, now time.Time) {
	a.mu.Lock()
	a.backoff.Until = time.Time{}
	var asked []cluster.Event
	for id, x := range a.executors {
		if x.requestID != 0 {
			x.requestedAt, x.pendingReason = now, "asked for again"
			app.master.Request(a.containerRequest(x))
			asked = append(asked, cluster.Pending{Executor: id, Why: x.pendingReason})
		}
	}
	a.mu.Unlock()
	a.emit(asked...)
	a.beatNow()
}

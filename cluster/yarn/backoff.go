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

// applicationType is that of our applications.
const applicationType = "TFCLUSTER"

// competitors asks YARN for the other reservations that are half filled.
func (a *allocation) competitors(app application) (gang.Competitors, error) {
	client, err := protocol.NewClient(a.site.Conf, a.site.User, site.ReachLimit)
	if err != nil {
		return gang.Competitors{}, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(a.ctx, site.ReachLimit)
	defer cancel()
	all, err := client.Running(ctx, applicationType)
	return gang.FindCompetitors(app.id, all), err
}

// progress is what the application tells of itself: the part of its executors that it
// has, and that it lacks nothing once it was whole.
func (a *allocation) progress() float32 {
	held, _, t := a.standing()
	if t.Whole {
		return 1
	}
	return float32(held) / float32(len(a.executors))
}

// standing is how many containers there are and how many are waited for, and the turns.
func (a *allocation) standing() (held, lacks int, t gang.Backoff) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.executors {
		if x.container != nil {
			held++
		} else if x.wish != 0 {
			lacks++
		}
	}
	return held, lacks, a.backoff
}

// countWhole notes that every executor has a container that a run cannot begin without. It
// is called with mu held, before anybody hears of the last one.
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

// giveWay gives back what a half-filled reservation holds, and asks again, each when its
// time has come. It says what is about to be done, "" for nothing.
func (a *allocation) giveWay(app application, now time.Time) string {
	held, lacks, t := a.standing()
	find := func() (gang.Competitors, error) { return a.competitors(app) }
	switch {
	case !t.Until.IsZero():
		if now.Before(t.Until) {
			return fmt.Sprintf("what it held was given back for %s and is half filled too; it asks again in %s", t.Whom, gang.About(t.Until.Sub(now)))
		}
		if !a.gang.Resumes(now, t, find) {
			return fmt.Sprintf("what it held was given back for %s and is half filled too; it asks again when that is filled", t.Whom)
		}
		a.askAgain(app, now)
		return ""
	case t.Whole, held == 0, lacks == 0:
		a.gang.Reset()
		return ""
	}
	left, stuck := a.gang.Watch(now, held, t, find)
	switch {
	case !stuck:
		return ""
	case left > 0:
		return fmt.Sprintf("in %s, unless more come, it gives the %d of %d containers that it has back for %s and is half filled too, and asks again",
			gang.About(left), held, len(a.executors), a.gang.Competitors.Oldest)
	}
	a.tell(a.giveUpHalf(app, now, a.gang.Delay(t.Given)))
	return ""
}

// giveUpHalf gives back what there is, takes back what is asked for, and rests.
func (a *allocation) giveUpHalf(app application, now time.Time, rest time.Duration) cluster.BackedOff {
	a.gang.Reset()
	a.mu.Lock()
	defer a.mu.Unlock()
	e := cluster.BackedOff{Attempts: map[cluster.ExecutorID]int{}}
	held := 0
	for id, x := range a.executors {
		if x.container != nil {
			held++
		}
		a.giveBack(x)
		a.wish(x, now)
		e.Attempts[id] = x.attempt
	}
	a.backoff.Given++
	a.backoff.Until, a.backoff.Whom, a.backoff.Full = now.Add(rest), a.gang.Competitors.Oldest, a.gang.Competitors.Full
	e.Why = fmt.Sprintf("%s gave the %d of %d containers that it had back for %s and is half filled too; it asks again in %s",
		protocol.ApplicationName(app.id), held, len(a.executors), a.backoff.Whom, gang.About(rest))
	return e
}

// askAgain ends a rest.
func (a *allocation) askAgain(app application, now time.Time) {
	a.mu.Lock()
	a.backoff.Until = time.Time{}
	var asked []cluster.Event
	for id, x := range a.executors {
		if x.wish != 0 {
			x.since, x.why = now, "asked for again"
			app.master.Ask(a.ask(x))
			asked = append(asked, cluster.Pending{Executor: id, Why: x.why})
		}
	}
	a.mu.Unlock()
	for _, e := range asked {
		a.tell(e)
	}
	a.rouse()
}

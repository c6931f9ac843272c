package yarn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/gang"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// application is one of YARN's, with this process as its ApplicationMaster.
type application struct {
	id     *yarnpb.ApplicationId // nil before there is one
	master *protocol.Master      // nil until YARN lets it have one
	nodes  *protocol.Nodes
	near   map[cluster.ExecutorID]protocol.Spot // where the first containers are best: see spread
}

// submit checks what is asked for and submits an application for it, after a change to
// its description, if that is not nil.
func submit(ctx context.Context, s site.Site, req cluster.Request, change func(*yarnpb.ApplicationSubmissionContext, application, shipped) error) (application, shipped, error) {
	if err := reach(ctx, s.Conf); err != nil {
		return application{}, shipped{}, err
	}
	client, err := protocol.NewClient(s.Conf, s.User, site.ReachLimit)
	if err != nil {
		return application{}, shipped{}, err
	}
	defer client.Close()
	id, most, err := client.NewApplication(ctx)
	if err != nil {
		return application{}, shipped{}, err
	}
	reports, err := check(ctx, client, req, most)
	if err != nil {
		return application{}, shipped{}, err
	}
	app := application{id: id, near: spread(req.Executors, reports)}
	program, err := ship(ctx, s, req.Program)
	if err != nil {
		return application{}, shipped{}, err
	}
	submission, err := describe(id, req)
	if err == nil && change != nil {
		err = change(submission, app, program)
	}
	if err != nil {
		return application{}, shipped{}, err
	}
	if err := client.Submit(ctx, submission); err != nil {
		if ctx.Err() != nil || errors.Is(err, protocol.ErrUnreachable) { // it may be there, and take a place in its queue
			_ = kill(s, id) // else it is given up by YARN after a while
		}
		return application{}, shipped{}, err
	}
	app.nodes = protocol.NewNodes(s.Conf, nodeLimit)
	return app, program, nil
}

// describe makes the application's submission.
func describe(id *yarnpb.ApplicationId, req cluster.Request) (*yarnpb.ApplicationSubmissionContext, error) {
	engine := req.Reserve.GetEngine()
	priority := 0
	if p := engine["priority"]; p != "" {
		var err error
		if priority, err = strconv.Atoi(p); err != nil {
			return nil, fmt.Errorf("--priority %s: %w", p, err)
		}
	}
	var tags []string
	for tag := range strings.SplitSeq(engine["tags"], ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			tags = append(tags, tag)
		}
	}
	return &yarnpb.ApplicationSubmissionContext{
		ApplicationId: id, ApplicationName: new("tfcluster " + req.Cluster), ApplicationType: new(applicationType), ApplicationTags: tags,
		Queue: new(queue(req)), Priority: &yarnpb.Priority{Priority: new(int32(priority))},
		UnmanagedAm: new(true), KeepContainersAcrossApplicationAttempts: new(true), MaxAppAttempts: new(int32(1)),
		AmContainerSpec: &yarnpb.ContainerLaunchContext{}, Resource: protocol.MemoryAndCores(1, 1, nil),
	}, nil
}

// queue is the one asked for, or YARN's default.
func queue(req cluster.Request) string {
	if q := req.Reserve.GetEngine()["queue"]; q != "" {
		return q
	}
	return "default"
}

// ending is what YARN is told at an application's end.
type ending struct {
	status yarnpb.FinalApplicationStatus
	words  string // a line
}

// released is the ending of one that did what it was for.
var released = ending{yarnpb.FinalApplicationStatus_APP_SUCCEEDED, "released"}

// endingOf is what a cluster's conclusion is to YARN.
func endingOf(how cluster.FinalStatus, why string) ending {
	switch how {
	case cluster.Failed:
		return ending{yarnpb.FinalApplicationStatus_APP_FAILED, why}
	case cluster.Killed:
		return ending{yarnpb.FinalApplicationStatus_APP_KILLED, why}
	}
	return released
}

// end ends an application so, or else by force.
func (p application) end(ctx context.Context, s site.Site, as ending) error {
	if p.id == nil {
		return nil
	}
	if p.master == nil {
		return errors.Join(kill(s, p.id), p.nodes.Close())
	}
	finishing, cancel := context.WithTimeout(ctx, 10*time.Second)
	err := p.master.Finish(finishing, as.status, as.words, "")
	cancel()
	if err != nil { // also where its token is none any more: that is not its end yet
		err = kill(s, p.id)
	}
	return errors.Join(err, p.close())
}

// close ends the connections. The application goes on.
func (p application) close() error { return errors.Join(p.master.Close(), p.nodes.Close()) }

// kill ends an application that nothing came of. One that YARN does not know is as good.
func kill(s site.Site, id *yarnpb.ApplicationId) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*site.ReachLimit)
	defer cancel()
	client, err := protocol.NewClient(s.Conf, s.User, site.ReachLimit)
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.Kill(ctx, id, "the reservation was given up")
	switch {
	case err == nil, errors.Is(err, protocol.ErrGone):
		return nil
	case errors.Is(err, protocol.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s was not ended, YARN does it after its expiry (10 minutes, unless set): %w", protocol.ApplicationName(id), err)
	}
	return err
}

// current is the application as it stands.
func (a *allocation) current() application {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.app
}

// run has an application as long as the allocation lasts: after one that ended under
// its containers, such as at a laptop's sleep, another.
func (a *allocation) run() {
	for {
		err := a.admit()
		admitted := err == nil
		if admitted {
			err = a.beat()
		}
		if admitted && errors.Is(err, protocol.ErrGone) {
			a.gone()
			if a.attempt == nil {
				err = a.again()
			}
		}
		if a.ctx.Err() != nil {
			return
		}
		if err != nil {
			a.tell(cluster.Terminated{Cause: err.Error()})
			return
		}
	}
}

// admit waits until YARN lets the application have its master, and registers it.
func (a *allocation) admit() error {
	app := a.current()
	if app.master != nil {
		return nil // an earlier driver's
	}
	client, err := protocol.NewClient(a.site.Conf, a.site.User, bridgeLimit)
	if err != nil {
		return err
	}
	defer client.Close()
	began := time.Now()
	state, err := client.AwaitMasterToken(a.ctx, app.id, func(r *yarnpb.ApplicationReport) {
		if time.Since(began) > patience {
			words := admissionWords(protocol.ApplicationName(app.id), queue(a.req), r.GetDiagnostics())
			a.pend(func(*executor) string { return words })
		}
	})
	if err != nil {
		return err
	}
	master, err := protocol.NewMaster(a.site.Conf, state, callLimit)
	if err != nil {
		return err
	}
	if _, err := register(a.ctx, master, protocol.Contact{}); err != nil {
		return errors.Join(err, master.Close())
	}
	a.mu.Lock()
	a.app.master = master
	master.Exclude(slices.Collect(maps.Keys(a.leftOut))...)
	for _, x := range a.executors {
		if x.wish != 0 {
			master.Ask(a.ask(x))
		}
	}
	a.mu.Unlock()
	a.tell(cluster.StateChanged{}) // another driver goes on in the same application, which keeps its place in the queue
	return nil
}

// again submits another application in the place of one that has ended. It waits for a
// YARN that is not there.
func (a *allocation) again() error {
	began := time.Now()
	for pause := shortBeat; ; pause = min(2*pause, 10*time.Second) {
		app, program, err := submit(a.ctx, a.site, a.req, nil)
		if err == nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.app, a.program, a.shipped = app, program, time.Now()
			a.lease(app.id)
			return nil
		}
		if !errors.Is(err, protocol.ErrUnreachable) && time.Since(began) > time.Minute {
			return err
		}
		a.pend(func(*executor) string { return err.Error() })
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-time.After(pause):
		}
	}
}

// gone tells everybody that the application has ended under them.
func (a *allocation) gone() {
	cause := a.whyGone()
	a.leaseOver(strings.TrimPrefix(cause, "its application "+a.ID()+" is "))
	a.mu.Lock()
	app := a.app
	a.app, a.backoff = application{}, gang.Backoff{Again: a.backoff.Whole || a.backoff.Again} // whatever comes was never part of a cluster
	var lost []cluster.Event
	for id, x := range a.executors {
		x.container, x.wish, x.cutOff = nil, 0, false
		lost = append(lost, cluster.Lost{Executor: id, Attempt: x.attempt, Cause: cause})
	}
	a.mu.Unlock()
	_ = a.forgetMoved(a.ctx, app) // else another submission sweeps it up
	_ = app.close()               // nobody is there any more
	for _, e := range lost {
		a.tell(e)
	}
}

// endingLimit is how long YARN may call an application running that has no master any
// more, since it is being ended.
const endingLimit = time.Second

// whyGone asks for what YARN says of the application's end.
func (a *allocation) whyGone() string {
	ctx, cancel := context.WithTimeout(a.ctx, site.ReachLimit)
	defer cancel()
	client, err := protocol.NewClient(a.site.Conf, a.site.User, site.ReachLimit)
	if err != nil {
		return err.Error()
	}
	defer client.Close()
	app := a.current()
	soon, enough := context.WithTimeout(ctx, endingLimit)
	defer enough()
	r, err := client.Await(soon, app.id, func(r *yarnpb.ApplicationReport) bool { return protocol.Ended(r.GetYarnApplicationState()) }, nil)
	if err != nil {
		r, err = client.Report(ctx, app.id)
	}
	if err != nil {
		return err.Error()
	}
	words := fmt.Sprintf("its application %s is %s", a.ID(), strings.ToLower(r.GetYarnApplicationState().String()))
	if why, _, _ := strings.Cut(strings.TrimSpace(r.GetDiagnostics()), "\n"); why != "" {
		words += ": " + why
	}
	return words
}

package yarn

import (
	"cmp"
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

// application is a YARN application whose ApplicationMaster is this process.
type application struct {
	id     *yarnpb.ApplicationId // nil until one is submitted
	master *protocol.Master      // nil until YARN has activated the application
	nodes  *protocol.Nodes
	near   map[cluster.ExecutorID]protocol.Locality // preferred nodes of the first containers: see placements
}

// submit validates the request and submits an application for it. If change is not nil, it may modify
// the submission context.
func submit(ctx context.Context, s site.Site, req cluster.Request,
	change func(*yarnpb.ApplicationSubmissionContext, application, cachedFile) error,
) (application, cachedFile, error) {
	if err := checkReachable(ctx, s.Conf); err != nil {
		return application{}, cachedFile{}, err
	}
	client, err := protocol.NewClient(s.Conf, s.User, site.ReachLimit)
	if err != nil {
		return application{}, cachedFile{}, err
	}
	defer client.Close()
	id, maximum, err := client.NewApplication(ctx)
	if err != nil {
		return application{}, cachedFile{}, err
	}
	reports, err := check(ctx, client, req, maximum)
	if err != nil {
		return application{}, cachedFile{}, err
	}
	app := application{id: id, near: placements(req.Executors, reports, req.Reserve.GetPack())}
	program, err := ship(ctx, s, req.Program)
	if err != nil {
		return application{}, cachedFile{}, err
	}
	submission, err := describe(id, req)
	if err == nil && change != nil {
		err = change(submission, app, program)
	}
	if err != nil {
		return application{}, cachedFile{}, err
	}
	if err := client.Submit(ctx, submission); err != nil {
		// YARN may have it, which would occupy a place in its queue.
		if ctx.Err() != nil || errors.Is(err, protocol.ErrUnreachable) {
			_ = kill(s, id) // otherwise YARN expires it after a while
		}
		return application{}, cachedFile{}, err
	}
	app.nodes = protocol.NewNodes(s.Conf, nodeLimit)
	return app, program, nil
}

// describe returns the application's submission context.
func describe(id *yarnpb.ApplicationId, req cluster.Request) (*yarnpb.ApplicationSubmissionContext, error) {
	engine := req.Reserve.GetEngine()
	priority := 0
	if p := engine["priority"]; p != "" {
		var err error
		if priority, err = strconv.Atoi(p); err != nil {
			return nil, fmt.Errorf("--priority %s: want a whole number", p)
		}
	}
	var tags []string
	for tag := range strings.SplitSeq(engine["tags"], ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			tags = append(tags, tag)
		}
	}
	return &yarnpb.ApplicationSubmissionContext{
		ApplicationId: id, ApplicationName: new("tfcluster " + req.Cluster), ApplicationType: new(applicationType),
		ApplicationTags: tags, Queue: new(queue(req)), Priority: &yarnpb.Priority{Priority: new(int32(priority))},
		UnmanagedAm: new(true), KeepContainersAcrossApplicationAttempts: new(true), MaxAppAttempts: new(int32(1)),
		AmContainerSpec: &yarnpb.ContainerLaunchContext{}, Resource: protocol.MemoryAndCores(1, 1, nil),
	}, nil
}

// queue returns the requested queue, or YARN's default.
func queue(req cluster.Request) string {
	return cmp.Or(req.Reserve.GetEngine()["queue"], "default")
}

// finalStatus is what YARN records when an application finishes.
type finalStatus struct {
	status      yarnpb.FinalApplicationStatus
	diagnostics string // one line
}

// statusReleased is the final status of a reservation that was released without a failure.
var statusReleased = finalStatus{yarnpb.FinalApplicationStatus_APP_SUCCEEDED, "released"}

// finalStatusOf converts a cluster's final status to YARN's.
func finalStatusOf(how cluster.FinalStatus, why string) finalStatus {
	switch how {
	case cluster.Failed:
		return finalStatus{yarnpb.FinalApplicationStatus_APP_FAILED, why}
	case cluster.Killed:
		return finalStatus{yarnpb.FinalApplicationStatus_APP_KILLED, why}
	}
	return statusReleased
}

// finish unregisters the application's master with a final status, or kills the application if that fails.
func (p application) finish(ctx context.Context, s site.Site, as finalStatus) error {
	if p.id == nil {
		return nil
	}
	if p.master == nil {
		return errors.Join(kill(s, p.id), p.nodes.Close())
	}
	finishing, cancel := context.WithTimeout(ctx, 10*time.Second)
	err := p.master.Finish(finishing, as.status, as.diagnostics, "")
	cancel()
	if err != nil { // also if its token has expired, which does not end the application
		err = kill(s, p.id)
	}
	return errors.Join(err, p.close())
}

// close closes the connections. The application goes on.
func (p application) close() error { return errors.Join(p.master.Close(), p.nodes.Close()) }

// kill kills an application. It returns nil if YARN does not know the application.
func kill(s site.Site, id *yarnpb.ApplicationId) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*site.ReachLimit)
	defer cancel()
	client, err := protocol.NewClient(s.Conf, s.User, site.ReachLimit)
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.Kill(ctx, id, "the reservation was cancelled")
	switch {
	case err == nil, errors.Is(err, protocol.ErrGone):
		return nil
	case errors.Is(err, protocol.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		name := protocol.ApplicationName(id)
		return fmt.Errorf("%s could not be killed, because YARN does not answer: YARN ends it after its expiry interval (10 "+
			"minutes by default), yarn application -kill %s at once", name, name)
	}
	return err
}

// current returns the present application.
func (a *allocation) current() application {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.app
}

// run keeps an application alive until the allocation is released. An unmanaged application that YARN
// has ended, for example because this machine was asleep, is replaced by another one.
func (a *allocation) run() {
	for {
		err := a.becomeMaster()
		admitted := err == nil
		if admitted {
			err = a.heartbeatLoop()
		}
		if admitted && errors.Is(err, protocol.ErrGone) {
			a.applicationGone()
			if a.attempt == nil {
				err = a.resubmit()
			}
		}
		if a.ctx.Err() != nil {
			return
		}
		if err != nil {
			a.emit(cluster.Terminated{Cause: err.Error()})
			return
		}
	}
}

// becomeMaster waits until YARN activates the application, and registers as its master.
func (a *allocation) becomeMaster() error {
	app := a.current()
	if app.master != nil {
		return nil // Recover registered it
	}
	client, err := protocol.NewClient(a.site.Conf, a.site.User, outageLimit)
	if err != nil {
		return err
	}
	defer client.Close()
	began := time.Now()
	state, err := client.AwaitMasterToken(a.ctx, app.id, func(r *yarnpb.ApplicationReport) {
		if time.Since(began) > pendingDelay {
			message := admissionMessage(protocol.ApplicationName(app.id), queue(a.req), r.GetDiagnostics())
			a.reportPending(func(*executor) string { return message })
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
	master.Exclude(slices.Collect(maps.Keys(a.excluded))...)
	for _, x := range a.executors {
		if x.requestID != 0 {
			master.Request(a.containerRequest(x))
		}
	}
	a.mu.Unlock()
	a.emit(cluster.StateChanged{}) // with this state another driver can resume the application
	return nil
}

// resubmit submits another application in place of one that has ended. It retries while YARN is unreachable.
func (a *allocation) resubmit() error {
	began := time.Now()
	for pause := shortInterval; ; pause = min(2*pause, 10*time.Second) {
		app, program, err := submit(a.ctx, a.site, a.req, nil)
		if err == nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.app, a.program, a.shippedAt = app, program, time.Now()
			a.addApplication(app.id)
			return nil
		}
		if !errors.Is(err, protocol.ErrUnreachable) && time.Since(began) > time.Minute {
			return err
		}
		a.reportPending(func(*executor) string { return err.Error() })
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-time.After(pause):
		}
	}
}

// applicationGone reports every executor as lost after the application has ended.
func (a *allocation) applicationGone() {
	cause, by := a.endCause()
	a.endApplication(strings.TrimPrefix(cause, "its application "+a.ID()+" is "))
	a.mu.Lock()
	app := a.app
	// A new application has no containers yet.
	a.app, a.backoff = application{}, gang.Backoff{Again: a.backoff.Whole || a.backoff.Again}
	var lost []cluster.Event
	for id, x := range a.executors {
		x.container, x.requestID, x.driverUnreachable = nil, 0, false
		lost = append(lost, cluster.Lost{Executor: id, Attempt: x.attempt, By: by, Cause: cause})
	}
	a.mu.Unlock()
	_ = a.removeAddress(a.ctx, app) // if it fails, a later submission removes the folder
	_ = app.close()                 // no call can succeed any more
	a.emit(lost...)
}

// finalStateLimit bounds the wait for the final state: YARN reports an application as running for a
// moment after it has unregistered its master.
const finalStateLimit = time.Second

// endCause asks YARN for the state and the diagnostics of the ended application, and returns what ended it.
func (a *allocation) endCause() (string, cluster.LostBy) {
	ctx, cancel := context.WithTimeout(a.ctx, site.ReachLimit)
	defer cancel()
	client, err := protocol.NewClient(a.site.Conf, a.site.User, site.ReachLimit)
	if err != nil {
		return err.Error(), cluster.LostByEngine
	}
	defer client.Close()
	app := a.current()
	soon, enough := context.WithTimeout(ctx, finalStateLimit)
	defer enough()
	r, err := client.Await(soon, app.id,
		func(r *yarnpb.ApplicationReport) bool { return protocol.Ended(r.GetYarnApplicationState()) }, nil)
	if err != nil {
		r, err = client.Report(ctx, app.id)
	}
	if err != nil {
		return err.Error(), cluster.LostByEngine
	}
	cause := fmt.Sprintf("its application %s is %s", a.ID(), strings.ToLower(r.GetYarnApplicationState().String()))
	if why, _, _ := strings.Cut(strings.TrimSpace(r.GetDiagnostics()), "\n"); why != "" {
		cause += ": " + why
	}
	if r.GetYarnApplicationState() == yarnpb.YarnApplicationState_KILLED {
		return cause, cluster.LostByKill
	}
	return cause, cluster.LostByEngine
}

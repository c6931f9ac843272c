package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/feed/dispatch"
	"github.com/tfcluster/tfcluster/cluster/driver/groups"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results"
)

// runs are the cluster's runs and the inputs of the last start. Owned by the loop.
type runs struct {
	cluster    string // its identity
	roles      []*clusterpb.Role
	autoStart  *clusterpb.StartRequest // of the run that the coordinator starts itself; nil: none
	others     int32                   // the last run of other clusters, judging by numbers
	records    []*record               // oldest first
	lastRun    int32
	planning   bool               // a start is being prepared
	feeds      *dispatch.Dispatch // safe from any goroutine, and not changed after New
	groups     *groups.Groups     // likewise
	startError string             // why autoStart could not start its run

	// of the last start
	program  *clusterpb.StartRequest
	given    []*clusterpb.Shipped
	blobs    map[string][]byte   // by digest
	launches *launches           // of the last attempt
	barriers map[string]*barrier // by attempt and name
}

func newRuns(cfg *Config) runs {
	r := runs{
		roles: cfg.Request.GetRoles(), autoStart: cfg.Begin, others: cfg.Earlier, lastRun: cfg.LastRun,
		blobs: map[string][]byte{}, barriers: map[string]*barrier{},
	}
	if cfg.Authority != nil {
		r.cluster = cfg.Authority.ID()
	}
	if cfg.Begin == nil && cfg.Recovered.StartRun == cfg.LastRun {
		r.autoStart = cfg.Recovered.Start // otherwise the last run was not to be restarted
	}
	if cfg.Recovered.Saved == nil {
		r.others = max(cfg.Earlier, cfg.LastRun)
	}
	return r
}

// addBlob stores a blob's data and sets its digest.
func (r *runs) addBlob(b *clusterpb.Blob) {
	if b == nil || (len(b.GetData()) == 0 && b.GetSha256() != "") {
		return
	}
	sum := sha256.Sum256(b.GetData())
	b.Sha256, b.Size = hex.EncodeToString(sum[:]), int64(len(b.GetData()))
	r.blobs[b.Sha256] = b.Data
}

// find returns a run's record; 0 is the active or last run. Loop only.
func (r *runs) find(run int32) *record {
	if run == 0 {
		return r.current()
	}
	for _, rec := range r.records {
		if rec.status.GetId() == run {
			return rec
		}
	}
	return nil
}

// isOwn returns whether a run belongs to this cluster, not to an earlier one in the same
// directory. A record without an identity was written by an earlier version, or not at all:
// then its number decides. Loop only.
func (r *runs) isOwn(rec *record) bool {
	if id := rec.status.GetClusterId(); id != "" {
		return id == r.cluster
	}
	return rec.status.GetId() > r.others
}

// current returns the record of the cluster's active or last run; nil if it has had none. Loop
// only.
func (r *runs) current() *record {
	if len(r.records) == 0 {
		return nil
	}
	if rec := r.records[len(r.records)-1]; r.isOwn(rec) {
		return rec
	}
	return nil
}

// runOver writes the run's record at its end; neverBegun is the reason if its start failed.
func (c *Coordinator) runOver(neverBegun *clusterpb.Failure) {
	rec := c.runs.current()
	if rec == nil {
		return
	}
	rec.status.EndedUnix = time.Now().Unix()
	rec.over = time.Now()
	if c.lc.Run() == nil || c.lc.Run().Spec.ID != rec.status.GetId() { // stopped before it began
		rec.status.State = "stopped"
		rec.status.Failure = &clusterpb.Failure{Kind: "canceled", Summary: "stopped before it began"}
		if neverBegun != nil {
			rec.status.Failure = neverBegun
			if neverBegun.GetKind() != "canceled" {
				rec.status.State = "failed"
			}
		}
	}
	c.fill(rec, c.lc.Run())
	c.settleValues(rec)
	c.compareTasks(rec)
	c.writeManifest(rec)
	c.writeRecord(rec)
	if f := rec.status.GetFailure(); f != nil && rec.status.GetState() == "failed" {
		c.log.Info("run failed", "run", rec.status.GetId(), "cause", f.GetSummary())
	}
	rec.shown.notesAtEnd = c.notes.total()
}

// runGone is called when all processes of a run have ended. Its outcome may have been recorded
// while tasks were still being ended, so their final states are recorded now. The lifecycle may
// have the next run already.
func (c *Coordinator) runGone(lr *lifecycle.Run) {
	rec := c.runs.find(lr.Spec.ID)
	rec.gone = true
	c.sweep(rec.status.GetId())
	c.store.EndRun(rec.status.GetId())
	if !rec.over.IsZero() {
		c.fill(rec, lr)
		c.writeRecord(rec)
	}
}

// writeRecord writes a run's record for history and a later driver: at its start, at its end,
// and when its last task has ended. Loop only.
func (c *Coordinator) writeRecord(rec *record) {
	err := results.WriteRun(c.files.localPath(rec.status.GetDir()), rec.status)
	if rec.written = err == nil; err != nil {
		c.noteOnce("the run's record could not be written: " + err.Error())
	}
}

// forgetEnded reduces the records of runs that are over to their status, because everything else is on disk, and memory
// must not grow with the number of runs. It keeps the last run's record, whose lines may still arrive. Loop only.
func (c *Coordinator) forgetEnded() {
	for i, rec := range c.runs.records[:max(0, len(c.runs.records)-1)] {
		current := c.lc.Run() != nil && c.lc.Run().Spec.ID == rec.status.GetId()
		if rec.loaded || !rec.gone || !rec.written || current || len(c.delivery(rec, true).pending) > 0 {
			continue
		}
		c.writeManifest(rec)
		st := c.status(rec) // with reprs of results
		c.runs.records[i] = &record{
			status: st, over: rec.over, entered: rec.entered, shown: rec.shown, gone: true, loaded: true,
		}
	}
}

// loadRecord loads an earlier driver's record of a run, without values of results, which
// readValues reads.
func (c *Coordinator) loadRecord(run int32) {
	st, err := results.ReadRun(c.files.folder(), run)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without a file its driver died before it was written
		c.noteOnce(fmt.Sprintf("the record of run %d cannot be read, and it is shown as interrupted: %v", run, err))
	}
	results.KeepReprs(st)
	c.files.setPaths(st)
	c.runs.records = append(c.runs.records, &record{status: st, gone: true, over: c.since, loaded: true})
}

// restartsAutomatically returns whether a run that the last driver's death interrupted will be
// continued by another. Loop only.
func (r *runs) restartsAutomatically(rec *record) bool {
	return r.autoStart != nil && rec.loaded && results.Interrupted(rec.status) && r.restartsLeft(rec) > 0
}

// restartsLeft returns the remaining restarts of an interrupted run, including those by a
// driver. Loop only.
func (r *runs) restartsLeft(rec *record) int32 {
	if rec.status.GetStartedUnix() == 0 { // its record was not written
		return r.autoStart.GetOptions().GetMaxRestarts()
	}
	return rec.status.GetMaxRestarts() - rec.status.GetRestarts()
}

// latest returns the run that continues an interrupted run; rec itself if there is none. Loop
// only.
func (r *runs) latest(rec *record) *record {
	for _, other := range r.records { // oldest first
		if rec != nil && other.status.GetContinues() == rec.status.GetId() {
			rec = other
		}
	}
	return rec
}

// autoStarted returns the run for which the cluster was made; nil while it is still to be
// started or restarted. Loop only.
func (r *runs) autoStarted() *record {
	if rec := r.current(); rec != nil && !r.restartsAutomatically(rec) {
		return rec
	}
	return nil
}

// programOf returns the program of a role's tasks: its own command, or the run's program.
func (r *runs) programOf(role string) *clusterpb.Program {
	for _, o := range r.roles {
		if o.GetName() == role && o.GetCommand() != "" {
			return &clusterpb.Program{
				Kind: clusterpb.Program_COMMAND, Name: o.GetCommand(), Words: []string{"/bin/sh", "-c", o.GetCommand()},
			}
		}
	}
	return withoutData(r.program.GetProgram())
}

// Feeds returns the services for feeds: of holders for the agents' port, of clients for the driver's socket.
func (c *Coordinator) Feeds() *dispatch.Dispatch { return c.runs.feeds }

// Groups returns the service for collective calls, for the agents' port.
func (c *Coordinator) Groups() *groups.Groups { return c.runs.groups }

// feedable tells packages dispatch and groups which run is active, and how producers reach the driver.
type feedable struct{ c *Coordinator }

// callerOf returns the executor in the certificate of a call's peer, which must run the task: an agent speaks for its
// own task alone.
func (c *Coordinator) callerOf(ctx context.Context, task string) (executor string, err error) {
	id := cluster.ExecutorID(auth.PeerName(ctx))
	if err := c.execs.checkTask(id, task); err != nil {
		return "", status.Error(codes.PermissionDenied, err.Error())
	}
	return string(id), nil
}

// GroupedRun implements groups.Runs.
func (f feedable) GroupedRun(ctx context.Context) (groups.Run, error) {
	fed, err := f.FeedableRun(ctx)
	run := groups.Run{ID: fed.ID, Over: fed.Over}
	for _, t := range fed.Tasks {
		run.Tasks = append(run.Tasks, groups.Task(t))
	}
	return run, err
}

// FeedableRun implements dispatch.Runs.
func (f feedable) FeedableRun(ctx context.Context) (dispatch.Run, error) {
	var run dispatch.Run
	err := f.c.call(ctx, func() { run = f.c.feedableRun() })
	return run, err
}

// Note implements dispatch.Runs.
func (f feedable) Note(ctx context.Context, text string) error {
	return f.c.call(ctx, func() { f.c.note(text, true); f.c.subs.wake() })
}

// Fail implements dispatch.Runs.
func (f feedable) Fail(ctx context.Context, run int32, why *clusterpb.Failure) error {
	return f.c.call(ctx, func() { f.c.handle(lifecycle.FeedFailed{Run: run, Failure: why}) })
}

// Route implements dispatch.Runs.
func (f feedable) Route(feed string) (*clusterpb.FeedRoute, error) {
	a := f.c.cfg.Authority
	certificate, key, err := a.IssueProducer(feed)
	if err != nil {
		return nil, err
	}
	return &clusterpb.FeedRoute{
		Address: f.c.Address(), Authority: string(a.CertPEM), Certificate: string(certificate), Key: string(key),
	}, nil
}

// feedableRun returns the run whose tasks can be fed, or why there is none. Loop only.
func (c *Coordinator) feedableRun() dispatch.Run {
	r := c.lc.Run()
	switch {
	case c.lc.Busy() && (r == nil || !r.State.Open()):
		return dispatch.Run{} // a start is on its way
	case r == nil:
		return dispatch.Run{Over: "no program has been started"}
	}
	run := dispatch.Run{
		ID: r.Spec.ID, Attempt: int32(r.Attempt), Entering: r.State != lifecycle.RunRunning, Ended: map[string]bool{},
	}
	restarting := r.State == lifecycle.RunRestarting
	switch {
	case restarting:
		run.Attempt++
	case r.Stopping:
		run.Over = fmt.Sprintf("run %d is being stopped", run.ID)
	case !r.State.Open():
		run.Over = fmt.Sprintf("run %d has ended: it %s", run.ID, r.State)
		if why := r.Failure.GetSummary(); why != "" { // a script has shown no status in between
			run.Over += ": " + why
		}
	}
	for _, t := range r.Tasks {
		name := t.ID.String()
		switch {
		case t.ID.Role != cluster.Chief && t.ID.Role != cluster.Worker:
		case restarting: // what the task was does not count any more
			run.Tasks = append(run.Tasks, dispatch.Task{Name: name})
		case !t.JoinedServer:
			run.Tasks = append(run.Tasks, dispatch.Task{Name: name, Attempt: int32(t.Attempt)})
			run.Ended[name] = t.State == lifecycle.TaskExited || t.State == lifecycle.TaskEnded
		}
	}
	return run
}

package coordinator

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results"
)

// runs are the cluster's runs, and what its next run is made of. Owned by the loop.
type runs struct {
	cluster   string // its identity
	roles     []*clusterpb.Role
	autoStart *clusterpb.StartRequest // of the run that no client begins: the cluster was made for it, or it was cut off
	others    int32                   // the last run that was another cluster's, as far as numbers tell
	records   []*record               // oldest first
	lastRun   int32
	planning  bool   // a start's folders are being made
	unbegun   string // why the run that the cluster was made for could not be begun

	// of the last start
	program  *clusterpb.StartRequest
	given    []*clusterpb.Shipped
	blobs    map[string][]byte   // by digest
	launches *launches           // of the last attempt
	barriers map[string]*barrier // by attempt and name
}

func newRuns(cfg *Config) runs {
	r := runs{roles: cfg.Request.GetRoles(), autoStart: cfg.Begin, others: cfg.Earlier, lastRun: cfg.LastRun, blobs: map[string][]byte{}, barriers: map[string]*barrier{}}
	if cfg.Authority != nil {
		r.cluster = cfg.Authority.ID()
	}
	if cfg.Begin == nil && cfg.Recovered.StartRun == cfg.LastRun {
		r.autoStart = cfg.Recovered.Start.WithOptions() // else a later run was not to go on
	}
	if cfg.Recovered.Saved == nil {
		r.others = max(cfg.Earlier, cfg.LastRun)
	}
	return r
}

// keepBlob takes a blob's data in and gives it its name.
func (r *runs) keepBlob(b *clusterpb.Blob) {
	if b == nil || (len(b.GetData()) == 0 && b.GetSha256() != "") {
		return
	}
	sum := sha256.Sum256(b.GetData())
	b.Sha256, b.Size = hex.EncodeToString(sum[:]), int64(len(b.GetData()))
	r.blobs[b.Sha256] = b.Data
}

// find is a run's record: 0 is the active or last one. Loop only.
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

// isOwn returns whether a run belongs to this cluster, not to an earlier one with the same
// directory. A run without an identity was recorded by an earlier version, or its driver
// died before it was recorded: its number then decides. Loop only.
func (r *runs) isOwn(rec *record) bool {
	if id := rec.status.GetClusterId(); id != "" {
		return id == r.cluster
	}
	return rec.status.GetId() > r.others
}

// current is the record of the cluster's active or last run; nil if it has had none. Runs
// of earlier clusters come before the cluster's own. Loop only.
func (r *runs) current() *record {
	if len(r.records) == 0 {
		return nil
	}
	if rec := r.records[len(r.records)-1]; r.isOwn(rec) {
		return rec
	}
	return nil
}

// runOver records a run's end where history and a later driver find it; neverBegun is
// why its start did not come about.
func (c *Coordinator) runOver(neverBegun *clusterpb.Failure) {
	rec := c.runs.current()
	if rec == nil {
		return
	}
	rec.status.EndedUnix = time.Now().Unix()
	rec.over = time.Now()
	if c.lc.Run() == nil || c.lc.Run().Spec.ID != rec.status.GetId() { // stopped before it could begin
		rec.status.State = "stopped"
		rec.status.Failure = &clusterpb.Failure{Kind: "canceled", Summary: "stopped before it began"}
		if neverBegun != nil {
			rec.status.Failure = neverBegun
			if neverBegun.GetKind() != "canceled" {
				rec.status.State = "failed"
			}
		}
	}
	c.lastStatus(rec)
	c.settleValues(rec)
	c.keepRecord(rec)
	if f := rec.status.GetFailure(); f != nil && rec.status.GetState() == "failed" {
		c.log.Info("run failed", "run", rec.status.GetId(), "cause", f.GetSummary())
	}
	rec.shown.said = c.notes.said()
}

// runGone is called when no process of a run is left. Its outcome may have been decided and
// recorded while some tasks were still being ended: their final states are recorded here. The lifecycle
// may have the next run already.
func (c *Coordinator) runGone(lr *lifecycle.Run) {
	rec := c.runs.find(lr.Spec.ID)
	rec.gone = true
	c.sweep(rec.status.GetId())
	if !rec.over.IsZero() {
		rec.fill(lr, c.store.Lines(rec.status.GetId()))
		c.keepRecord(rec)
	}
}

// keepRecord writes a run's record where history and a later driver find it: when it
// begins, so that both know of it in any case, at its end, and when its last task has ended. Loop only.
func (c *Coordinator) keepRecord(rec *record) {
	if err := results.WriteRun(c.files.here(rec.status.GetDir()), rec.status); err != nil {
		c.noteOnce("the run's record could not be written: " + err.Error())
	}
}

// loadRecord takes up a run that an earlier driver recorded, without the values that its
// tasks returned: readValues reads them for whoever waits for that run.
func (c *Coordinator) loadRecord(run int32) {
	st, _ := results.ReadRun(c.files.folder(), run) // without a file its driver died before it was recorded
	results.KeepReprs(st)
	c.files.placed(st)
	c.runs.records = append(c.runs.records, &record{status: st, gone: true, over: c.since, loaded: true})
}

// beginsAgain returns whether a run that the last driver's death cut off goes on as another.
// Loop only.
func (r *runs) beginsAgain(rec *record) bool {
	return r.autoStart != nil && rec.loaded && results.Interrupted(rec.status) && r.restartsLeft(rec) > 0
}

// restartsLeft returns how often a run that was cut off may still be restarted: by a driver too.
// Loop only.
func (r *runs) restartsLeft(rec *record) int32 {
	if rec.status.GetStartedUnix() == 0 { // its driver died before it was recorded
		return r.autoStart.GetOptions().GetMaxRestarts()
	}
	return rec.status.GetMaxRestarts() - rec.status.GetRestarts()
}

// latest returns the run as which a run that was cut off goes on; the run itself where it was not,
// or does not go on. Loop only.
func (r *runs) latest(rec *record) *record {
	for _, other := range r.records { // oldest first
		if rec != nil && other.status.GetContinues() == rec.status.GetId() {
			rec = other
		}
	}
	return rec
}

// begun is the run that the cluster was made for; nil while that is still to begin, or to
// begin again. Loop only.
func (r *runs) begun() *record {
	if rec := r.current(); rec != nil && !r.beginsAgain(rec) {
		return rec
	}
	return nil
}

// programOf is what the tasks of a role run: its own command, or the program.
func (r *runs) programOf(role string) *clusterpb.Program {
	for _, o := range r.roles {
		if o.GetName() == role && o.GetCommand() != "" {
			return &clusterpb.Program{Kind: clusterpb.Program_COMMAND, Name: o.GetCommand(), Words: []string{"/bin/sh", "-c", o.GetCommand()}}
		}
	}
	return withoutData(r.program.GetProgram())
}

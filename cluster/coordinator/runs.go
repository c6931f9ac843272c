package coordinator

import (
	"cmp"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results"
)

// launch composes a task's launch and sends it.
func (c *Coordinator) launch(a lifecycle.LaunchTask) {
	rec, start := c.current(), c.program
	conn := c.agents[a.Exec]
	if conn == nil {
		return // its loss is on its way
	}
	if all := applications(c.alloc); len(all) > 0 { // not before: it may have waited for another
		rec.status.Allocation = all[len(all)-1].ID
	}
	env := a.Spec.PlaceEnv(a.Task)
	for _, from := range []map[string]string{c.cfg.Request.GetEnv(), start.GetEnv(), a.Spec.FrameworkEnv(c.cfg.Request.GetFramework(), a.Task)} {
		maps.Copy(env, from)
	}
	own := func(name string) bool { _, ok := env[name]; return ok }
	shared, x := c.launchesOf(a.Spec), c.lc.Executor(a.Exec)
	rec.started(a.Task, x)
	rec.writes(a.Task, int32(a.Attempt), x)
	rec.values.drop(a.Task, a.Task == resultTask(c.cfg.Request.GetRoles()))
	c.owes(x, rec.status.GetId(), int32(a.Attempt))
	conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Launch{Launch: &clusterpb.Launch{
		Run: rec.status.GetId(), Attempt: int32(a.Attempt), Task: a.Task.String(), Program: shared.programs[a.Task.Role], Env: env,
		Directories: &clusterpb.Directories{
			Dir: rec.status.GetDir(), Logs: rec.status.GetLogDir(), Checkpoints: rec.status.GetCheckpointDir(), Export: rec.status.GetExportDir(),
			Working: c.startsIn(start), Given: start.GetStartIn(), Notebook: start.GetWorkingDir(),
		},
		Mode: start.GetMode(), Epochs: start.GetEpochs(), NumWorkers: int32(len(a.Spec[cluster.Worker]) + len(a.Spec[cluster.Chief])), ClusterSpec: shared.spec,
		Callback: start.GetCallback(), KerasPatch: start.GetKerasPatch(), DefaultFs: cmp.Or(c.cfg.DefaultFS, "file://"), Resumed: start.GetResume() != "" || a.Attempt > 1,
		ExecutorNumber: shared.numbers[a.Task], Files: c.given, SpecVariables: cluster.SpecVariables(c.cfg.Request.GetFramework(), a.Task, own),
		RoleKind: shared.roles[a.Task.Role].kind, Follows: shared.roles[a.Task.Role].follows,
	}}})
}

// startsIn is the notebook's folder where tasks are to start there: on the notebook's own
// machine. On another a folder of that path is another folder, if there is one.
func (c *Coordinator) startsIn(start *clusterpb.StartRequest) string {
	if c.cfg.Here {
		return start.GetWorkingDir()
	}
	return ""
}

// programOf is what the tasks of a role run: its own command, or the program.
func (c *Coordinator) programOf(role string) *clusterpb.Program {
	for _, r := range c.cfg.Request.GetRoles() {
		if r.GetName() == role && r.GetCommand() != "" {
			return &clusterpb.Program{Kind: clusterpb.Program_COMMAND, Name: r.GetCommand(), Words: []string{"/bin/sh", "-c", r.GetCommand()}}
		}
	}
	return withoutData(c.program.GetProgram())
}

// withoutData is a program whose blobs are named by digest alone.
func withoutData(p *clusterpb.Program) *clusterpb.Program {
	q := proto.CloneOf(p)
	for _, b := range []*clusterpb.Blob{q.GetBody(), q.GetArgs(), q.GetModules()} {
		if b != nil {
			b.Data = nil
		}
	}
	return q
}

// runOver records a run's end where history and a later driver find it; neverBegun is
// why its start did not come about.
func (c *Coordinator) runOver(neverBegun *clusterpb.Failure) {
	rec := c.current()
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
	rec.said = c.notes.said()
}

// keepRecord writes a run's record where history and a later driver find it: when it
// begins, so that both know of it in any case, and at its end. Loop only.
func (c *Coordinator) keepRecord(rec *record) {
	if err := results.WriteRun(c.here(rec.status.GetDir()), rec.status); err != nil {
		c.noteOnce("the run's record could not be written: " + err.Error())
	}
}

// loadRecord takes up a run that an earlier driver recorded, without the values that its
// tasks returned: readValues reads them for whoever waits for that run.
func (c *Coordinator) loadRecord(run int32) {
	st, _ := results.ReadRun(c.cfg.folder(), run) // without a file its driver died before it was recorded
	results.KeepReprs(st)
	c.placed(st)
	c.records = append(c.records, &record{status: st, gone: true, over: c.since, loaded: true})
}

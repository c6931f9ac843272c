package cluster

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// launch composes a task's launch and sends it.
func (c *Coordinator) launch(a actLaunch) {
	rec, start := c.current(), c.program
	conn := c.agents[a.exec]
	if conn == nil {
		return // its loss is on its way
	}
	if all := leases(c.alloc); len(all) > 0 { // not before: it may have waited for another
		rec.status.Allocation = all[len(all)-1].ID
	}
	env := a.spec.place(a.task)
	for _, from := range []map[string]string{c.cfg.Request.GetEnv(), start.GetEnv(), a.spec.coordinates(c.cfg.Request.GetFramework(), a.task)} {
		maps.Copy(env, from)
	}
	own := func(name string) bool { _, ok := env[name]; return ok }
	shared, x := c.launchesOf(a.spec), c.lc.exec(a.exec)
	rec.started(a.task, x)
	rec.writes(a.task, int32(a.attempt), x)
	rec.values.drop(a.task, a.task == resultTask(c.cfg.Request.GetRoles()))
	c.owes(x, rec.status.GetId(), int32(a.attempt))
	conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Launch{Launch: &clusterpb.Launch{
		Run: rec.status.GetId(), Attempt: int32(a.attempt), Task: a.task.String(), Program: shared.programs[a.task.Role], Env: env,
		Directories: &clusterpb.Directories{
			Dir: rec.status.GetDir(), Logs: rec.status.GetLogDir(), Checkpoints: rec.status.GetCheckpointDir(), Export: rec.status.GetExportDir(),
			Working: c.startsIn(start), Given: start.GetStartIn(), Notebook: start.GetWorkingDir(),
		},
		Mode: start.GetMode(), Epochs: start.GetEpochs(), NumWorkers: int32(len(a.spec[Worker]) + len(a.spec[Chief])), ClusterSpec: shared.spec,
		Callback: start.GetCallback(), KerasPatch: start.GetKerasPatch(), DefaultFs: cmp.Or(c.cfg.DefaultFS, "file://"), Resumed: start.GetResume() != "" || a.attempt > 1,
		ExecutorNumber: shared.numbers[a.task], Files: c.given, SpecVariables: specVariables(c.cfg.Request.GetFramework(), a.task, own),
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
	if c.lc.run == nil || c.lc.run.spec.id != rec.status.GetId() { // stopped before it could begin
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
	b, err := protojson.MarshalOptions{Multiline: true}.Marshal(rec.status)
	if err == nil {
		err = WriteFile(filepath.Join(c.here(rec.status.GetDir()), recordFile), b)
	}
	if err != nil {
		c.noteOnce("the run's record could not be written: " + err.Error())
	}
}

// loadRecord takes up a run that an earlier driver recorded, without the values that its
// tasks returned: readValues reads them for whoever waits for that run.
func (c *Coordinator) loadRecord(run int32) {
	b, err := os.ReadFile(filepath.Join(RunDir(c.cfg.folder(), run), recordFile))
	if err != nil {
		b = nil // its driver died before it was recorded
	}
	st := readRecord(run, b)
	keepReprs(st)
	c.placed(st)
	c.records = append(c.records, &record{status: st, gone: true, over: c.since, loaded: true})
}

// recordReader reads records, also those of a later version that say more.
var recordReader = protojson.UnmarshalOptions{DiscardUnknown: true}

// recordFile is a run's record, in its folder.
const recordFile = "run.json"

// isCutOff is whether a run is one that its driver's death ended.
func isCutOff(st *clusterpb.RunStatus) bool {
	return st.GetFailure().GetKind() == "lost" && st.GetEndedUnix() == 0
}

// readRecord is a run of which a driver that is no more wrote a record, or none. Where it
// is not of the run's end, the driver did not see that.
func readRecord(run int32, text []byte) *clusterpb.RunStatus {
	st := &clusterpb.RunStatus{}
	if recordReader.Unmarshal(text, st) != nil {
		st = &clusterpb.RunStatus{}
	}
	st.Id = run
	if !slices.Contains([]string{runFinished.String(), runFailed.String(), runStopped.String()}, st.GetState()) {
		st.State, st.EndedUnix = runFailed.String(), 0
		st.Failure = &clusterpb.Failure{
			Kind: "lost", ExitCode: 1, Summary: "the cluster's driver died during the run; its tasks were ended",
			Remedy: "%tfcluster start --resume goes on from the last checkpoint",
		}
	}
	return st
}

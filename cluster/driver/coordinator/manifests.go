package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/manifest"
	"github.com/tfcluster/tfcluster/cluster/manifest/git"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// manifests are what the tasks of a run ran with. Owned by the coordinator's loop.
type manifests struct {
	run     *clusterpb.RunManifest             // without the tasks; nil: of a run of an earlier driver
	of      map[string]*clusterpb.TaskManifest // by task
	noted   map[string]bool                    // lines that were shown
	changed bool                               // since the file was written
}

// mostDifferences is how many differences between tasks are shown.
const mostDifferences = 5

// manifestDelay is how long parts of manifests that come one after the other are collected before the file is written.
const manifestDelay = time.Second

// manifested adds a part of a task's manifest. Loop only.
func (c *Coordinator) manifested(rec *record, e *clusterpb.TaskEvent) {
	m := &rec.manifests
	part := e.GetManifest() // its agent has removed secrets
	part.Attempt = e.GetAttempt()
	if m.of == nil {
		m.of, m.noted = map[string]*clusterpb.TaskManifest{}, map[string]bool{}
	}
	whole := manifest.Merge(m.of[e.GetTask()], part)
	if first := m.of[resultTask(c.cfg.Request.GetRoles()).String()]; first != nil && first != whole {
		manifest.Share(whole, first)
	}
	m.of[e.GetTask()], m.changed = whole, true
	if rec.entered {
		c.later(rec)
	}
}

// later compares a run's manifests and writes them, soon. Loop only.
func (c *Coordinator) later(rec *record) {
	name := fmt.Sprintf("manifest of run %d", rec.status.GetId())
	if _, set := c.timers[name]; !set {
		c.after(name, manifestDelay, func() { c.compareTasks(rec); c.writeManifest(rec) })
	}
}

// gitLimit is how long git may take in the notebook's folder.
const gitLimit = 10 * time.Second

// gitDelay is how long after the start git is asked: it would slow down the start on a host with few cores.
const gitDelay = 100 * time.Millisecond

// entered completes a run's manifest when all its tasks have entered the program. Loop only.
func (c *Coordinator) entered(rec *record, notebook string) {
	c.compareTasks(rec)
	c.later(rec)
	if c.cfg.Request.GetEngine()[cluster.EngineManaged] != "" || rec.manifests.run == nil ||
		rec.manifests.run.GetGit() != nil || notebook == "" {
		return
	}
	c.after(fmt.Sprintf("git for run %d", rec.status.GetId()), gitDelay, func() {
		c.work.Go(func() { c.askGit(rec, notebook) })
	})
}

// askGit adds the commit of the notebook's folder to a run's manifest. It may be called outside of the loop.
func (c *Coordinator) askGit(rec *record, notebook string) {
	ctx, cancel := context.WithTimeout(c.working, gitLimit)
	defer cancel()
	commit := git.State(ctx, notebook)
	if commit == nil {
		return
	}
	c.post(func() {
		rec.manifests.run.Git, rec.manifests.changed = commit, true
		if c.later(rec); !rec.over.IsZero() {
			c.writeManifest(rec)
		}
	})
}

// compareTasks adds a note for each new difference between the tasks of a run. Loop only.
func (c *Coordinator) compareTasks(rec *record) {
	m := &rec.manifests
	var fresh []manifest.Difference
	for _, d := range manifest.Differences(m.of) {
		if line := d.String(); !m.noted[line] {
			m.noted[line] = true
			fresh = append(fresh, d)
		}
	}
	where := rundir.Join(rec.status.GetDir(), results.ManifestFile)
	for _, line := range manifest.Lines(fresh, mostDifferences, where) {
		c.note(line, true)
	}
	if len(fresh) > 0 {
		c.subs.wake()
	}
}

// writeManifest writes what a run's tasks ran with, if it has changed. Loop only.
func (c *Coordinator) writeManifest(rec *record) {
	m := &rec.manifests
	if !m.changed {
		return
	}
	m.changed = false
	run := manifest.Of(m.of)
	proto.Merge(run, m.run)
	if err := results.WriteManifest(c.files.localPath(rec.status.GetDir()), run); err != nil {
		c.noteOnce("what the run's tasks ran with could not be written: " + err.Error())
	}
}

// manifestOf returns the part of a run's manifest that the driver knows.
func (c *Coordinator) manifestOf(p *runPlan) *clusterpb.RunManifest {
	request, options := c.cfg.Request, p.req.GetOptions()
	m := &clusterpb.RunManifest{
		Git: p.req.GetGit(), Version: c.cfg.Version, Framework: cmp.Or(request.GetFramework(), cluster.TensorFlow),
		Environment: manifest.Variables(merged(request.GetEnv(), options.GetEnv())), Options: optionTexts(options),
		Files: map[string]string{},
	}
	for _, f := range p.given {
		m.Files[f.GetName()] = f.GetContent().GetSha256()
	}
	return m
}

// optionTexts returns the options of a run that are set, without those that have a place of their own.
func optionTexts(o *clusterpb.RunOptions) map[string]string {
	o = proto.CloneOf(o)
	if o == nil {
		return nil
	}
	o.Env, o.WorkingDir, o.Resume = nil, "", ""
	texts := map[string]string{}
	fields := o.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); !f.IsMap() && o.ProtoReflect().Has(f) {
			texts[strings.ReplaceAll(string(f.Name()), "_", "-")] = fmt.Sprint(o.ProtoReflect().Get(f).Interface())
		}
	}
	return texts
}

// readManifests returns the manifests of runs that have one; those of earlier clusters may first have to be fetched.
func (c *Coordinator) readManifests(ctx context.Context, runs []int32) (map[int32]*clusterpb.RunManifest, error) {
	for _, run := range runs {
		if err := c.files.fetchFolder(ctx, run, results.ManifestFile); err != nil {
			return nil, fmt.Errorf("fetch what run %d recorded of its program (%s): %w", run, results.ManifestFile, err)
		}
	}
	return results.ReadManifests(ctx, results.LocalFolder(c.files.folder()), runs)
}

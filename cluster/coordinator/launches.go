package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// launches is what the launches of one attempt have in common: it is made once and shared
// by their messages. Owned by the coordinator's loop.
type launches struct {
	run      int32
	attempt  int
	spec     string // as JSON
	numbers  map[cluster.TaskID]int32
	programs map[string]*clusterpb.Program // by role
	roles    map[string]launchedRole
}

// launchesOf is what the launches of the active attempt share. Loop only.
func (c *Coordinator) launchesOf(spec cluster.Spec) *launches {
	r := c.lc.Run()
	if l := c.runs.launches; l != nil && l.run == r.Spec.ID && l.attempt == r.Attempt {
		return l
	}
	l := &launches{run: r.Spec.ID, attempt: r.Attempt, spec: spec.JSON(), numbers: map[cluster.TaskID]int32{}, programs: map[string]*clusterpb.Program{}, roles: launchedRoles(c.cfg.Request.GetRoles())}
	for i, t := range c.lc.Tasks() {
		l.numbers[t] = int32(i)
		if l.programs[t.Role] == nil {
			l.programs[t.Role] = c.runs.programOf(t.Role)
		}
	}
	c.runs.launches = l
	return l
}

// launch composes a task's launch and sends it.
func (c *Coordinator) launch(a lifecycle.LaunchTask) {
	rec, start := c.runs.current(), c.runs.program
	conn := c.execs.agents[a.Exec]
	if conn == nil {
		return // its loss is on its way
	}
	if all := applications(c.reserved.alloc); len(all) > 0 { // not before: it may have waited for another
		rec.status.Allocation = all[len(all)-1].ID
	}
	env := a.Spec.PlaceEnv(a.Task)
	for _, from := range []map[string]string{c.cfg.Request.GetEnv(), start.GetOptions().GetEnv(), a.Spec.FrameworkEnv(c.cfg.Request.GetFramework(), a.Task)} {
		maps.Copy(env, from)
	}
	own := func(name string) bool { _, ok := env[name]; return ok }
	shared, x := c.launchesOf(a.Spec), c.lc.Executor(a.Exec)
	rec.started(a.Task, x)
	rec.writes(a.Task, int32(a.Attempt), x)
	rec.values.drop(a.Task, a.Task == resultTask(c.cfg.Request.GetRoles()))
	c.execs.owes(x, rec.status.GetId(), int32(a.Attempt))
	conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Launch{Launch: &clusterpb.Launch{
		Run: rec.status.GetId(), Attempt: int32(a.Attempt), Task: a.Task.String(), Program: shared.programs[a.Task.Role], Env: env,
		Directories: &clusterpb.Directories{
			Dir: rec.status.GetDir(), Logs: rec.status.GetLogDir(), Checkpoints: rec.status.GetCheckpointDir(), Export: rec.status.GetExportDir(),
			Working: c.startsIn(start.GetOptions()),
		},
		Options: start.GetOptions(), NumWorkers: int32(len(a.Spec[cluster.Worker]) + len(a.Spec[cluster.Chief])), ClusterSpec: shared.spec,
		DefaultFs: cmp.Or(c.cfg.DefaultFS, "file://"), Resumed: start.GetOptions().GetResume() != "" || a.Attempt > 1,
		ExecutorNumber: shared.numbers[a.Task], Files: c.runs.given, SpecVariables: cluster.SpecVariables(c.cfg.Request.GetFramework(), a.Task, own),
		RoleKind: shared.roles[a.Task.Role].kind, Follows: shared.roles[a.Task.Role].follows,
	}}})
}

// startsIn is the notebook's folder where tasks are to start there: on the notebook's own
// machine. On another a folder of that path is another folder, if there is one.
func (c *Coordinator) startsIn(options *clusterpb.RunOptions) string {
	if c.cfg.Here {
		return options.GetWorkingDir()
	}
	return ""
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

// launchedRole is what agents are told of a task's role.
type launchedRole struct {
	kind    string
	follows bool // tracked roles that have ended
}

func launchedRoles(roles []*clusterpb.Role) map[string]launchedRole {
	all := map[string]launchedRole{}
	for _, r := range roles {
		all[r.GetName()] = launchedRole{kind: cluster.KindOf(r)}
	}
	for _, r := range roles {
		known := all[r.GetName()]
		known.follows = slices.ContainsFunc(r.GetDependsOn(), func(before string) bool { return all[before].kind == cluster.Tracked })
		all[r.GetName()] = known
	}
	return all
}

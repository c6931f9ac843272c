package coordinator

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/fabric"
)

// launches is the common data of the launches of one attempt, made once and shared by their
// messages. Owned by the coordinator's loop.
type launches struct {
	run      int32
	attempt  int
	spec     string // as JSON
	numbers  map[cluster.TaskID]int32
	programs map[string]*clusterpb.Program // by role
	roles    map[string]launchedRole
	network  map[string]taskNetwork // by task
}

// taskNetwork is what a task gets for its executor's network.
type taskNetwork struct {
	env        map[string]string
	collective *clusterpb.CollectivePort // nil: TCP
}

// launchesOf returns the common data of the active attempt's launches. Loop only.
func (c *Coordinator) launchesOf(spec cluster.Spec) *launches {
	r := c.lc.Run()
	if l := c.runs.launches; l != nil && l.run == r.Spec.ID && l.attempt == r.Attempt {
		return l
	}
	l := &launches{
		run: r.Spec.ID, attempt: r.Attempt, spec: spec.JSON(), numbers: map[cluster.TaskID]int32{},
		programs: map[string]*clusterpb.Program{}, roles: launchedRoles(c.cfg.Request.GetRoles()),
	}
	l.network = c.networks()
	for i, t := range c.lc.Tasks() {
		l.numbers[t] = int32(i)
		if l.programs[t.Role] == nil {
			l.programs[t.Role] = c.runs.programOf(t.Role)
		}
	}
	c.runs.launches = l
	return l
}

// launch sends a task's Launch to its agent.
func (c *Coordinator) launch(a lifecycle.LaunchTask) {
	rec, start := c.runs.current(), c.runs.program
	conn := c.execs.agents[a.Exec]
	if conn == nil {
		return // its loss will be reported
	}
	// Set now because the application may change before the launch.
	if all := applications(c.reserved.alloc); len(all) > 0 {
		rec.status.Allocation = all[len(all)-1].ID
	}
	env := merged(a.Spec.PlaceEnv(a.Task), c.cfg.Request.GetEnv(), start.GetOptions().GetEnv(),
		a.Spec.FrameworkEnv(c.cfg.Request.GetFramework(), a.Task))
	working := ""
	if c.cfg.OnThisHost { // on other machines the path would name another folder
		working = start.GetOptions().GetWorkingDir()
	}
	own := func(name string) bool { _, ok := env[name]; return ok }
	shared, x := c.launchesOf(a.Spec), c.lc.Executor(a.Exec)
	chosen := shared.network[a.Task.String()]
	for name, value := range chosen.env {
		if !own(name) {
			env[name] = value
		}
	}
	rec.started(a.Task, x)
	rec.launched(a.Task, int32(a.Attempt), x)
	rec.values.drop(a.Task, a.Task == resultTask(c.cfg.Request.GetRoles()))
	c.execs.expectFiles(x, rec.status.GetId(), int32(a.Attempt))
	conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Launch{Launch: &clusterpb.Launch{
		Run: rec.status.GetId(), Attempt: int32(a.Attempt), Task: a.Task.String(),
		Program: shared.programs[a.Task.Role], Env: env,
		Directories: &clusterpb.Directories{
			Dir: rec.status.GetDir(), Logs: rec.status.GetLogDir(), Checkpoints: rec.status.GetCheckpointDir(),
			Export: rec.status.GetExportDir(), Working: working,
		},
		Options: start.GetOptions(), NumWorkers: int32(len(a.Spec[cluster.Worker]) + len(a.Spec[cluster.Chief])),
		ClusterSpec: shared.spec, DefaultFs: cmp.Or(c.cfg.DefaultFS, "file://"),
		Resumed: start.GetOptions().GetResume() != "" || a.Attempt > 1, ExecutorNumber: shared.numbers[a.Task],
		Files: c.runs.given, SpecVariables: cluster.SpecVariables(c.cfg.Request.GetFramework(), a.Task, own),
		RoleKind: shared.roles[a.Task.Role].kind, Follows: shared.roles[a.Task.Role].follows, Collective: chosen.collective,
	}}})
}

// merged returns the variables of all environments; a later one takes precedence.
func merged(envs ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, env := range envs {
		maps.Copy(all, env)
	}
	return all
}

// withoutData returns a program whose blobs have digests only.
func withoutData(p *clusterpb.Program) *clusterpb.Program {
	q := proto.CloneOf(p)
	for _, b := range []*clusterpb.Blob{q.GetBody(), q.GetArgs(), q.GetModules()} {
		if b != nil {
			b.Data = nil
		}
	}
	return q
}

// launchedRole is the data about a task's role for agents.
type launchedRole struct {
	kind    string
	follows bool // it depends on a tracked role
}

func launchedRoles(roles []*clusterpb.Role) map[string]launchedRole {
	all := map[string]launchedRole{}
	for _, r := range roles {
		all[r.GetName()] = launchedRole{kind: cluster.KindOf(r)}
	}
	for _, r := range roles {
		known := all[r.GetName()]
		known.follows = slices.ContainsFunc(r.GetDependsOn(),
			func(before string) bool { return all[before].kind == cluster.Tracked })
		all[r.GetName()] = known
	}
	return all
}

// network chooses the network of the executors for the options of a run. The error is the reason why --fabric cannot be
// had. Loop only.
func (c *Coordinator) network(options *clusterpb.RunOptions) (*clusterpb.FabricReply, error) {
	roles := launchedRoles(c.cfg.Request.GetRoles())
	var members []fabric.Member
	for _, x := range c.lc.Executors() {
		hello := c.execs.hellos[x.ID]
		if hello == nil || x.State == lifecycle.ExecutorLost {
			continue
		}
		members = append(members, fabric.Member{
			Task: x.Task.String(), Host: x.Host, Compared: roles[x.Task.Role].kind == cluster.Tracked, Python: hello.GetPython(),
			Fabric: hello.GetFabric(),
		})
	}
	return fabric.Decide(members, options.GetFabric(),
		fabric.Given{Reserve: c.cfg.Request.GetEnv(), Start: options.GetEnv()})
}

// networks returns what each task gets for the network: environment variables without those that somebody else has set,
// and the port of its collective calls. Loop only.
func (c *Coordinator) networks() map[string]taskNetwork {
	reply, err := c.network(c.runs.program.GetOptions())
	if err != nil { // an executor has been replaced since the start
		c.noteOnce(err.Error())
	}
	all := map[string]taskNetwork{}
	for _, x := range reply.GetExecutors() {
		env := map[string]string{}
		for _, s := range x.GetSettings() {
			if s.GetSource() == "" {
				env[s.GetName()] = s.GetValue()
			}
		}
		all[x.GetTask()] = taskNetwork{env, x.GetCollective()}
	}
	return all
}

// networkLine returns one line about the network of executors on several hosts. Loop only.
func (c *Coordinator) networkLine() string {
	hosts := map[string]bool{}
	for _, x := range c.lc.Executors() {
		hosts[x.Host] = true
	}
	reply, err := c.network(nil)
	if len(hosts) < 2 || err != nil || reply.GetSummary() == "" {
		return ""
	}
	return "network: " + reply.GetSummary()
}

// Fabric implements the Control service.
func (c *control) Fabric(ctx context.Context, _ *clusterpb.FabricRequest) (*clusterpb.FabricReply, error) {
	return ask(ctx, &c.eventLoop, func() (*clusterpb.FabricReply, error) {
		reply, problem := c.network(c.runs.program.GetOptions())
		rec := c.runs.current()
		for _, x := range reply.GetExecutors() {
			id, err := cluster.ParseTask(x.GetTask())
			if err == nil && rec != nil && rec.tasks[id] != nil {
				x.Chosen = rec.tasks[id].status.GetNccl()
			}
		}
		if reply == nil {
			return nil, status.Error(codes.FailedPrecondition, problem.Error())
		}
		return reply, nil
	})
}

package coordinator

import (
	"slices"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
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
	if l := c.launches; l != nil && l.run == r.Spec.ID && l.attempt == r.Attempt {
		return l
	}
	l := &launches{run: r.Spec.ID, attempt: r.Attempt, spec: spec.JSON(), numbers: map[cluster.TaskID]int32{}, programs: map[string]*clusterpb.Program{}, roles: launchedRoles(c.cfg.Request.GetRoles())}
	for i, t := range c.lc.Tasks() {
		l.numbers[t] = int32(i)
		if l.programs[t.Role] == nil {
			l.programs[t.Role] = c.programOf(t.Role)
		}
	}
	c.launches = l
	return l
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

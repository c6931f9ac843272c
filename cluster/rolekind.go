package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Kinds of roles. They define the effect of a task's end on the run.
const (
	Tracked   = "tracked"   // the run waits for their ends, and fails with the first that fails
	Untracked = "untracked" // not waited for: they are ended with the run, but fail it as tracked ones do
	Sidecar   = "sidecar"   // not waited for, and a failure is but told
)

// Kinds lists all kinds of roles.
func Kinds() []string { return []string{Tracked, Untracked, Sidecar} }

// Frameworks whose environment variables the tasks of a program can get.
const (
	TensorFlow = "tensorflow" // TF_CONFIG
	PyTorch    = "pytorch"    // MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, …
	JAX        = "jax"        // JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID
	Plain      = "none"       // the roles' addresses alone; the program is a command
)

// Frameworks lists all frameworks, the default first.
func Frameworks() []string { return []string{TensorFlow, PyTorch, JAX, Plain} }

// kindByName returns the default kind of a role: parameter servers never end by themselves, and
// the failure of a sidecar does not fail the run.
func kindByName(role string) string {
	switch role {
	case PS:
		return Untracked
	case Evaluator, "sidecar", "tensorboard":
		return Sidecar
	}
	return Tracked
}

// KindOf returns the kind of a role: the requested one, or the default of its name.
func KindOf(r *clusterpb.Role) string { return cmp.Or(r.GetKind(), kindByName(r.GetName())) }

// validateKinds checks the kinds of the roles and their dependencies.
func validateKinds(roles []*clusterpb.Role) error {
	byName := map[string]*clusterpb.Role{}
	for _, r := range roles {
		if r.GetCount() > 0 {
			byName[r.GetName()] = r
		}
	}
	free := map[string]bool{} // roles that are in no circle
	ends := false             // whether a role ends the run
	for _, r := range roles {
		switch {
		case r.GetKind() != "" && !slices.Contains(Kinds(), r.GetKind()):
			return fmt.Errorf("--%s-kind %q: want one of %s", r.GetName(), r.GetKind(), strings.Join(Kinds(), ", "))
		case r.GetName() == Chief && KindOf(r) != Tracked:
			return errors.New(
				"--chief-kind: the run ends when the chief ends, so the chief is always tracked; leave the option out")
		case r.GetName() == Chief && r.GetEndWithinMillis() != 0:
			return errors.New(
				"--chief-end-within: the run ends when the chief ends; use --run-timeout to limit the time of the run")
		case r.GetEndWithinMillis() < 0:
			return fmt.Errorf("--%s-end-within is %d ms: give a time above 0", r.GetName(), r.GetEndWithinMillis())
		}
		for _, before := range r.GetDependsOn() {
			if byName[before] == nil {
				return fmt.Errorf("role %s depends on %s, of which there are no executors: request some, "+
					"or leave --%[1]s-depends-on out", r.GetName(), before)
			}
		}
		if circle := circleFrom(r.GetName(), byName, free, nil); circle != nil {
			return fmt.Errorf("roles that depend on one another never start (%s): remove one --ROLE-depends-on",
				strings.Join(circle, " → "))
		}
		ends = ends || (r.GetCount() > 0 && KindOf(r) == Tracked && r.GetEndWithinMillis() == 0)
	}
	if !ends {
		return errors.New("no role ends the run: one of them must be tracked and have no --ROLE-end-within")
	}
	return nil
}

// circleFrom returns a path of dependencies from a role that ends at a role on the path, or nil.
// Roles without such a path are added to free, so that each is visited once.
func circleFrom(role string, byName map[string]*clusterpb.Role, free map[string]bool, way []string) []string {
	if i := slices.Index(way, role); i >= 0 {
		return append(way[i:], role)
	}
	if free[role] {
		return nil
	}
	for _, before := range byName[role].GetDependsOn() {
		if circle := circleFrom(before, byName, free, append(slices.Clone(way), role)); circle != nil {
			return circle
		}
	}
	free[role] = true
	return nil
}

// CommandsOnly reports whether every role has a command, so that a run needs no program.
func CommandsOnly(roles []*clusterpb.Role) bool {
	return !slices.ContainsFunc(roles, func(r *clusterpb.Role) bool { return r.GetCount() > 0 && r.GetCommand() == "" })
}

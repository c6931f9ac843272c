package lifecycle

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Policy holds the rules of a role.
type Policy struct {
	kind  string
	after []string // roles that must start or end first
	// endWithin is how long the role's tasks may continue after all tracked roles without such
	// a limit have ended; 0 means no limit for a tracked role, and an immediate end for
	// another.
	endWithin time.Duration
}

func policyOf(r *clusterpb.Role, lim Limits) Policy {
	p := Policy{
		kind: cluster.KindOf(r), after: r.GetDependsOn(), endWithin: time.Duration(r.GetEndWithinMillis()) * time.Millisecond,
	}
	if r.GetName() == cluster.Evaluator && p.endWithin == 0 {
		p.endWithin = lim.evaluator
	}
	return p
}

// rolePolicies returns the policies of the requested roles, by name.
func rolePolicies(roles []*clusterpb.Role, lim Limits) map[string]Policy {
	policies := map[string]Policy{}
	for _, r := range roles {
		policies[r.GetName()] = policyOf(r, lim)
	}
	return policies
}

package cluster

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// rolePolicy is what the lifecycle knows of a role.
type rolePolicy struct {
	kind  string
	after []string // roles that come before it
	// endWithin is how long its tasks have once the tracked roles that have no such
	// limit have ended; 0: tracked ones for ever, others nothing.
	endWithin time.Duration
}

func policyOf(r *clusterpb.Role, lim limits) rolePolicy {
	p := rolePolicy{kind: KindOf(r), after: r.GetDependsOn(), endWithin: time.Duration(r.GetEndWithinMillis()) * time.Millisecond}
	if r.GetName() == Evaluator && p.endWithin == 0 {
		p.endWithin = lim.evaluator
	}
	return p
}

// rolePolicies are the policies of a request's roles.
func rolePolicies(roles []*clusterpb.Role, lim limits) map[string]rolePolicy {
	policies := map[string]rolePolicy{}
	for _, r := range roles {
		policies[r.GetName()] = policyOf(r, lim)
	}
	return policies
}

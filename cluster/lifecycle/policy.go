package lifecycle

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Policy is what the lifecycle knows of a role.
type Policy struct {
	kind  string
	after []string // roles that come before it
	// endWithin is how long its tasks have once the tracked roles that have no such
	// limit have ended; 0: tracked ones for ever, others nothing.
	endWithin time.Duration
}

func policyOf(r *clusterpb.Role, lim Limits) Policy {
	p := Policy{kind: cluster.KindOf(r), after: r.GetDependsOn(), endWithin: time.Duration(r.GetEndWithinMillis()) * time.Millisecond}
	if r.GetName() == cluster.Evaluator && p.endWithin == 0 {
		p.endWithin = lim.evaluator
	}
	return p
}

// rolePolicies are the policies of a request's roles.
func rolePolicies(roles []*clusterpb.Role, lim Limits) map[string]Policy {
	policies := map[string]Policy{}
	for _, r := range roles {
		policies[r.GetName()] = policyOf(r, lim)
	}
	return policies
}

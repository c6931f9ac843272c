package coordinator

import (
	"maps"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestLaunchedRoles: agents are told of each role's kind, and of roles that begin when
// tracked ones have ended.
func TestLaunchedRoles(t *testing.T) {
	t.Parallel()
	got := launchedRoles([]*clusterpb.Role{
		{Name: "report", DependsOn: []string{"trainer"}},
		{Name: "trainer", DependsOn: []string{cluster.PS}},
		{Name: cluster.PS},
		{Name: "looker", Kind: cluster.Sidecar},
	})
	want := map[string]launchedRole{
		"report": {cluster.Tracked, true}, "trainer": {cluster.Tracked, false}, cluster.PS: {cluster.Untracked, false},
		"looker": {cluster.Sidecar, false},
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

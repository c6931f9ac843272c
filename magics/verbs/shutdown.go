package verbs

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/result"
)

// shutdown releases the cluster, also one whose driver died.
func (inv *invocation) shutdown(ctx context.Context) (result.Value, error) {
	m, err := inv.session.PickOrRecover(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	return nil, inv.session.Release(ctx, inv.out, m, &clusterpb.ShutdownRequest{Force: inv.Has("force"), Reason: "shutdown"})
}

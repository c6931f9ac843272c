package magics

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// shutdown releases the cluster, also one whose driver died.
func (inv *invocation) shutdown(ctx context.Context) (Value, error) {
	m, err := inv.session.pickOrRecover(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	return nil, inv.session.release(ctx, inv.out, m, &clusterpb.ShutdownRequest{Force: inv.Has("force"), Reason: "shutdown"})
}

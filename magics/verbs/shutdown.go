package verbs

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
)

var shutdownVerb = row{
	Verb: command.Verb{
		Name: "shutdown", Summary: "release the cluster", Magic: true, Shell: true, Now: true,
		Options: []command.Option{
			{Name: "force", Kind: command.KindFlag, Help: "although a run is active"}, clusterOption, nowOption,
		}, Example: "shutdown",
	},
	run: (*invocation).shutdown,
}

// shutdown releases the cluster, also if its driver has died.
func (inv *invocation) shutdown(ctx context.Context) (result.Value, error) {
	m, err := inv.session.PickOrRecover(ctx, inv.Command, inv.Has("force"))
	if err != nil {
		return nil, err
	}
	return nil, inv.release(ctx, m, &clusterpb.ShutdownRequest{Force: inv.Has("force"), Reason: "shutdown"})
}

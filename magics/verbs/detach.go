package verbs

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var detachVerb = row{
	Verb: command.Verb{
		Name: "detach", Summary: "let the run go on when this kernel shuts down", Magic: true, Now: true,
		Options: []command.Option{clusterOption, nowOption}, Example: "detach",
	},
	run: (*invocation).detach,
}

// detach has the active run, and its cluster, continue without this kernel.
func (inv *invocation) detach(ctx context.Context) (result.Value, error) {
	m, err := inv.session.Pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	run, err := session.Ask(ctx, m, m.Client.Detach, &clusterpb.DetachRequest{})
	if err != nil {
		return nil, err
	}
	inv.out.Stdout("run " + render.Thousands(int64(run.GetId())) + " continues after this kernel shuts down; " +
		inv.session.Say("attach "+m.Name) + " attaches to cluster " + m.Name + " again\n")
	return result.OfRun(m.Name, run), nil
}

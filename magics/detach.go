package magics

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// detach lets the active run, and with it the cluster, go on without this kernel.
func (inv *invocation) detach(ctx context.Context) (Value, error) {
	m, err := inv.session.pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	run, err := m.client.Detach(ctx, &clusterpb.DetachRequest{})
	if err != nil {
		return nil, answered(err)
	}
	inv.out.Stdout("run " + thousands(int64(run.GetId())) + " goes on when this kernel shuts down; " + inv.session.say("attach "+m.name) + " takes cluster " + m.name + " up again\n")
	return runValue(m.name, run), nil
}

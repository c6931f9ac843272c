package magics

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// detach lets the active run, and with it the cluster, go on without this kernel.
func (s *Session) detach(ctx context.Context, inv *invocation) (Value, error) {
	m, err := s.pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	run, err := m.client.Detach(ctx, &clusterpb.DetachRequest{})
	if err != nil {
		return nil, answered(err)
	}
	inv.out.Stdout("run " + thousands(int64(run.GetId())) + " goes on when this kernel shuts down; " + s.say("attach "+m.name) + " takes cluster " + m.name + " up again\n")
	return runValue(m.name, run), nil
}

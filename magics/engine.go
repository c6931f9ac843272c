package magics

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// EngineSession asks a cluster's driver for the engine's session it is on.
func (s *State) EngineSession(ctx context.Context, name string) (map[string]string, error) {
	m, err := s.reach(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	reply, err := m.client.EngineSession(ctx, &clusterpb.EngineSessionRequest{})
	if err != nil {
		return nil, answered(err)
	}
	return map[string]string{"name": reply.GetName(), "remote": reply.GetRemote()}, nil
}

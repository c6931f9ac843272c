package session

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// EngineSession returns how the notebook can use the engine's session of a cluster: "name", with
// the socket at which the notebook lent that session, or "remote".
func (s *State) EngineSession(ctx context.Context, name string) (map[string]string, error) {
	m, err := s.Reach(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, RecoverTimeout)
	defer cancel()
	reply, err := m.Client.EngineSession(ctx, &clusterpb.EngineSessionRequest{})
	if err != nil {
		return nil, m.Explain(err)
	}
	found := map[string]string{"name": reply.GetName(), "remote": reply.GetRemote()}
	if reply.GetName() != "" {
		if found["socket"], err = state.HostSocket(m.Name); err != nil {
			return nil, err
		}
	}
	return found, nil
}

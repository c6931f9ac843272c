package magics

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// engine answers Python's Cluster.spark(). What it says may hold a token: it goes to
// Python and is shown to nobody.
func (g *Gate) engine(c *caller, first *gateMessage) {
	value, err := g.session.engineSession(g.ctx, first.Cluster)
	if err != nil {
		_ = c.send(map[string]any{"op": "done", "error": NewReport(err)}) // else the peer has gone
		return
	}
	_ = c.send(map[string]any{"op": "done", "value": value})
}

// engineSession asks a cluster's driver for the engine's session it is on.
func (s *Session) engineSession(ctx context.Context, name string) (map[string]string, error) {
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

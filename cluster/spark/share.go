package spark

import (
	"context"
	"errors"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// shareTimeout bounds the start of Spark Connect's server.
const shareTimeout = 30 * time.Second

// Session implements cluster.SessionSharer: it returns the name of the notebook's own session,
// or the URL of Spark Connect, on loopback and with a token, for a session that the driver
// made.
func (a *allocation) Session(ctx context.Context) (*clusterpb.EngineSessionReply, error) {
	if name := a.req.Reserve.GetEngine()[engineSession]; name != "" {
		return &clusterpb.EngineSessionReply{Name: name}, nil
	}
	a.mu.Lock()
	h := a.host
	a.mu.Unlock()
	if h == nil {
		return nil, errors.New("the cluster's Spark session is over: reset creates another")
	}
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	var remote string
	if err := h.call(ctx, "share", nil, &remote); err != nil {
		return nil, err
	}
	return &clusterpb.EngineSessionReply{Remote: remote}, nil
}

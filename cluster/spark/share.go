package spark

import (
	"context"
	"errors"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// shareTimeout is how long Spark Connect's server may take to start.
const shareTimeout = 30 * time.Second

// Session says how a notebook uses the cluster's SparkSession: its own by its name,
// one that the driver made by Spark Connect, at loopback and with a token.
func (a *allocation) Session(ctx context.Context) (*clusterpb.EngineSessionReply, error) {
	if name := a.req.Reserve.GetEngine()[engineSession]; name != "" {
		return &clusterpb.EngineSessionReply{Name: name}, nil
	}
	a.mu.Lock()
	h := a.host
	a.mu.Unlock()
	if h == nil {
		return nil, errors.New("the cluster's Spark session is over: reset makes it anew")
	}
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	var remote string
	if err := h.call(ctx, "share", nil, &remote); err != nil {
		return nil, err
	}
	return &clusterpb.EngineSessionReply{Remote: remote}, nil
}

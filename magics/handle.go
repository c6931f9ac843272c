package magics

import (
	"context"
	"io"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func closeClient(c clusterpb.ControlClient) {
	if c, ok := c.(io.Closer); ok {
		_ = c.Close() // nothing is left to say over it
	}
}

// recall asks for the runs of the cluster, or all that its directory holds.
func (m *member) recall(ctx context.Context, all bool) (*clusterpb.HistoryReply, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := m.client.History(ctx, &clusterpb.HistoryRequest{All: all})
	if err != nil {
		return nil, answered(err)
	}
	return r, nil
}

func (m *member) history(ctx context.Context, all bool) ([]*clusterpb.RunStatus, error) {
	h, err := m.recall(ctx, all)
	return h.GetRuns(), err
}

func (m *member) status(ctx context.Context) (*clusterpb.ClusterStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return m.client.Status(ctx, &clusterpb.StatusRequest{})
}

// member is a cluster the session holds.
type member struct {
	name   string
	client clusterpb.ControlClient
	owned  bool // released when the kernel is shut down
	drop   context.CancelFunc
}

func (m *member) close() {
	m.drop()
	if c, ok := m.client.(io.Closer); ok {
		_ = c.Close() // nothing is left to say over it
	}
}

// hold keeps the presence stream open until ctx or the driver ends.
func hold(ctx context.Context, client clusterpb.ControlClient, who string) {
	stream, err := client.Hold(ctx)
	if err != nil {
		return // the next call says why
	}
	if err := stream.Send(&clusterpb.HoldRequest{Client: who}); err != nil {
		return
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return
		}
	}
}

package session

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Handle is a cluster the session holds.
type Handle struct {
	Name   string
	Client clusterpb.ControlClient
	State  *State // that holds it
	// Recovered: the last verb started a driver for it in the place of one that died.
	Recovered bool
	owned     bool // released when the kernel is shut down
	drop      context.CancelFunc
	held      atomic.Bool
	open      func() // opens the presence stream
}

func closeClient(c clusterpb.ControlClient) {
	if c, ok := c.(io.Closer); ok {
		_ = c.Close() // nothing is left to say over it
	}
}

// Explain returns the error of a failed call to this cluster in words.
func (m *Handle) Explain(err error) error { return m.State.Explain(m.Name, err) }

// Feeds returns the client of the driver's feeds.
func (m *Handle) Feeds() (clusterpb.FeedControlClient, error) {
	c, ok := m.Client.(clusterpb.FeedControlClient)
	if !ok {
		return nil, fmt.Errorf("the connection to cluster %s has no feeds", m.Name)
	}
	return c, nil
}

// Recall asks for the runs of the cluster, or all that its directory holds.
func (m *Handle) Recall(ctx context.Context, all bool) (*clusterpb.HistoryReply, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	r, err := m.Client.History(ctx, &clusterpb.HistoryRequest{All: all})
	if err != nil {
		return nil, m.Explain(err)
	}
	return r, nil
}

// History is the runs of Recall's answer.
func (m *Handle) History(ctx context.Context, all bool) ([]*clusterpb.RunStatus, error) {
	h, err := m.Recall(ctx, all)
	return h.GetRuns(), err
}

// Status asks for the cluster's state.
func (m *Handle) Status(ctx context.Context) (*clusterpb.ClusterStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	return m.Client.Status(ctx, &clusterpb.StatusRequest{})
}

func (m *Handle) close() {
	m.drop()
	if c, ok := m.Client.(io.Closer); ok {
		_ = c.Close() // nothing is left to say over it
	}
}

// Hold counts the session among the cluster's clients from now on, so that its idle clock stands
// still. Verbs that only look at a cluster do not call it.
func (m *Handle) Hold() {
	if m.held.CompareAndSwap(false, true) {
		m.open()
	}
}

// Held returns whether Hold was called.
func (m *Handle) Held() bool { return m.held.Load() }

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

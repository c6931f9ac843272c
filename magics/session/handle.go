package session

import (
	"context"
	"io"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/magics/result"
)

// Handle is the session's connection to a cluster.
type Handle struct {
	Name   string
	Client clusterpb.ControlClient
	State  *State // the session of the handle
	// Recovered reports whether the last verb replaced a driver that had died.
	Recovered bool
	owned     bool // released when the kernel is shut down
	drop      context.CancelFunc
	held      atomic.Bool
	open      func() // opens the presence stream
	presence  presence
}

func closeClient(c clusterpb.ControlClient) {
	if c, ok := c.(io.Closer); ok {
		_ = c.Close() // an error changes nothing: the connection is not used again
	}
}

// Explain returns the error of a failed call to this cluster, in words for the user.
func (m *Handle) Explain(err error) error {
	// gRPC itself begins this text with "unknown", for an unknown method or service.
	if s := status.Convert(err); s.Code() == codes.Unimplemented && strings.HasPrefix(s.Message(), "unknown ") {
		return &result.ClusterError{
			Text: "cluster " + m.Name + " was reserved by an earlier version, whose driver does not know this command", Code: 69,
			Remedy: m.State.Say("shutdown -c "+m.Name) + ", then reserve it again",
		}
	}
	return m.State.Explain(m.Name, err)
}

// CutShort returns the error of an answer that the driver ended before its result.
func (m *Handle) CutShort() error {
	return &result.ClusterError{
		Text:   "the driver of cluster " + m.Name + " ended its answer before the result",
		Remedy: m.State.Say("status -c "+m.Name) + " shows what became of it",
	}
}

// Feeds returns the client of the driver's feeds.
func (m *Handle) Feeds() (clusterpb.FeedControlClient, error) {
	c, ok := m.Client.(clusterpb.FeedControlClient)
	if !ok {
		return nil, errtext.Fault("the connection to cluster %s has no feeds", m.Name)
	}
	return c, nil
}

// FetchHistory returns the cluster's runs. With all, it also returns the runs of earlier clusters in its directory.
// It returns the manifests of the runs with these numbers, as far as they exist.
func (m *Handle) FetchHistory(ctx context.Context, all bool, manifests ...int32) (*clusterpb.HistoryReply, error) {
	return Ask(ctx, m, m.Client.History, &clusterpb.HistoryRequest{All: all, Manifests: manifests})
}

// Ask calls the driver of m within AnswerTimeout. It returns the error in words for the user.
func Ask[Request, Reply any](ctx context.Context, m *Handle,
	call func(context.Context, Request, ...grpc.CallOption) (Reply, error), req Request,
) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	r, err := call(ctx, req)
	if err != nil {
		return *new(Reply), m.Explain(err)
	}
	return r, nil
}

// History returns the runs of FetchHistory.
func (m *Handle) History(ctx context.Context, all bool) ([]*clusterpb.RunStatus, error) {
	h, err := m.FetchHistory(ctx, all)
	return h.GetRuns(), err
}

// Status returns the cluster's status.
func (m *Handle) Status(ctx context.Context) (*clusterpb.ClusterStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	stream, _ := m.presence.current()
	st, err := m.Client.Status(ctx, &clusterpb.StatusRequest{})
	if err == nil {
		m.presence.keep(stream, st)
	}
	return st, err
}

// Reserved returns a status whose name, request and version are right; the rest may be old. It asks the driver only if
// no status is kept.
func (m *Handle) Reserved(ctx context.Context) (*clusterpb.ClusterStatus, error) {
	if _, st := m.presence.current(); st != nil {
		return st, nil
	}
	return m.Status(ctx)
}

func (m *Handle) close() {
	m.drop()
	closeClient(m.Client)
}

// Hold registers the session as a client of the cluster, which stops its idle timer. Verbs that
// only read do not call it.
func (m *Handle) Hold() {
	if m.held.CompareAndSwap(false, true) {
		m.open()
	}
}

// Held reports whether Hold was called.
func (m *Handle) Held() bool { return m.held.Load() }

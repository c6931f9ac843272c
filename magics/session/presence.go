package session

import (
	"context"
	"sync"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// presence keeps the driver's status while the session's Hold stream is open. In that time the driver is the same
// process, so its name, request and version do not change.
type presence struct {
	mu       sync.Mutex
	stream   int                      // the number of the open stream; 0: none is open; guarded by mu
	streams  int                      // how many were opened; guarded by mu
	reserved *clusterpb.ClusterStatus // nil: not known; guarded by mu
}

func (p *presence) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams++
	p.stream = p.streams
}

func (p *presence) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stream, p.reserved = 0, nil
}

// current returns the number of the open stream, and the status that was kept since it was opened.
func (p *presence) current() (int, *clusterpb.ClusterStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream, p.reserved
}

// keep keeps the answer to a call that began during a stream. A managed cluster's proxy may have answered itself.
func (p *presence) keep(stream int, st *clusterpb.ClusterStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stream != 0 && p.stream == stream && st.GetRequest().GetEngine()[cluster.EngineManaged] == "" {
		p.reserved = st
	}
}

// hold keeps the presence stream open until ctx or the driver ends.
func (m *Handle) hold(ctx context.Context, who string) {
	stream, err := m.Client.Hold(ctx)
	if err == nil {
		err = stream.Send(&clusterpb.HoldRequest{Client: who})
	}
	if err == nil {
		_, err = stream.Recv() // the driver has registered the session
	}
	if err != nil {
		return // the next call returns the reason
	}
	m.presence.begin()
	defer m.presence.end()
	for err == nil {
		_, err = stream.Recv()
	}
}

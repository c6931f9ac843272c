package protocol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// State is what another process needs to be the same ApplicationMaster. It is secret.
type State struct {
	Token credentials.Token // of kind credentials.AMRM
}

// Master is an ApplicationMaster toward the ResourceManager's scheduler. Heartbeats are
// its owner's: one goroutine calls Allocate; the other methods may be called from any.
type Master struct {
	ipc    *ipc.Client
	config ipc.Config // without its token

	mu         sync.Mutex
	state      State                     // guarded by mu
	contact    Contact                   // guarded by mu: of the last Register
	responseID int32                     // guarded by mu: of the last answer
	asks       map[int64]Ask             // guarded by mu: what was not given yet
	told       map[int64]bool            // guarded by mu: wishes that the ResourceManager has
	changed    []*yarnpb.ResourceRequest // guarded by mu: what the next heartbeat says
	releases   []*yarnpb.ContainerId     // guarded by mu: containers of which the end is not told yet
	released   int                       // guarded by mu: how many of releases were sent
	excluded   map[string]bool           // guarded by mu: nodes that are to give nothing
	known      map[string]bool           // guarded by mu: those of which the ResourceManager has heard

	// guarded by mu: a heartbeat of which nobody knows whether it was heard. The
	// ResourceManager answers one that it has heard already as it did before, whatever
	// else is in it: before it is answered nothing new may be said.
	unanswered *yarnpb.AllocateRequest
}

// NewMaster is the ApplicationMaster that a State is of. It tries for bridge to reach
// the ResourceManager, which may be restarting.
func NewMaster(conf *hadoopconf.Conf, s State, bridge time.Duration) (*Master, error) {
	at, err := addresses(conf, schedulerService)
	if err != nil {
		return nil, err
	}
	config := ipc.Config{Protocol: schedulerService.protocol, Protections: protections(conf)}
	m := &Master{config: config, state: s, asks: map[int64]Ask{}, told: map[int64]bool{}, excluded: map[string]bool{}, known: map[string]bool{}}
	config.Token = &s.Token
	m.ipc = ipc.NewClient(at, bridge, config)
	return m, nil
}

// Open makes the connection that Register is to use. It need not succeed.
func (m *Master) Open(ctx context.Context) error { return m.ipc.Open(ctx) }

// Close ends the connection and the calls that wait. The application goes on.
func (m *Master) Close() error { return m.ipc.Close() }

// State is what another process needs now. It changes when Allocate says Renewed.
func (m *Master) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Contact is where a master is found, as the application's report tells it. The zero
// value is nowhere.
type Contact struct {
	Host string
	Port int32
	Page string // URL of the page that shows what it does, which the ResourceManager's proxy fetches
}

// Register tells the ResourceManager that the master is there. The answer holds the
// containers that it has already, and the tokens of their nodes. ErrRegistered and
// ErrGone tell that there is nothing to take over.
func (m *Master) Register(ctx context.Context, at Contact) (*yarnpb.RegisterApplicationMasterResponse, error) {
	port := at.Port
	if port == 0 {
		port = -1
	}
	r, err := call(ctx, m.ipc, "registerApplicationMaster", &yarnpb.RegisterApplicationMasterRequest{
		Host: &at.Host, RpcPort: &port, TrackingUrl: &at.Page,
	}, &yarnpb.RegisterApplicationMasterResponse{})
	if err != nil {
		return nil, explain("register with the ResourceManager", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.contact, m.responseID, m.released = at, 0, 0
	m.changed = nil
	clear(m.told)
	clear(m.known)
	m.unanswered = nil
	for _, id := range slices.Sorted(maps.Keys(m.asks)) {
		m.changed = append(m.changed, m.asks[id].requests(1)...)
	}
	return r, nil
}

// Release gives containers back, by the next heartbeat. Their end is told as others'.
func (m *Master) Release(ids ...*yarnpb.ContainerId) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releases = append(m.releases, ids...)
}

// Exclude has nodes give nothing to the application, by the next heartbeat. They are
// named by their hosts. What they have given stays.
func (m *Master) Exclude(nodes ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		m.excluded[n] = true
	}
}

// Include takes Exclude back.
func (m *Master) Include(nodes ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		delete(m.excluded, n)
	}
}

// exclusions are what the ResourceManager does not know of Exclude and Include; nil:
// nothing. It is called with mu held.
func (m *Master) exclusions() *yarnpb.ResourceBlacklistRequest {
	r := &yarnpb.ResourceBlacklistRequest{}
	for _, n := range slices.Sorted(maps.Keys(m.excluded)) {
		if !m.known[n] {
			r.BlacklistAdditions = append(r.BlacklistAdditions, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(m.known)) {
		if !m.excluded[n] {
			r.BlacklistRemovals = append(r.BlacklistRemovals, n)
		}
	}
	if len(r.GetBlacklistAdditions())+len(r.GetBlacklistRemovals()) == 0 {
		return nil
	}
	return r
}

// Beat is what a heartbeat brought.
type Beat struct {
	*yarnpb.AllocateResponse
	// Renewed says that State is another, to be saved.
	Renewed bool
	// Resynced holds the answer to a registration with a ResourceManager that was
	// restarted; nil otherwise.
	Resynced *yarnpb.RegisterApplicationMasterResponse
}

// commands says that the ResourceManager commands this. Nothing is no command, which an
// enumeration's default would hide.
func (b Beat) commands(c yarnpb.AMCommand) bool {
	return b.AllocateResponse != nil && b.AMCommand != nil && b.GetAMCommand() == c
}

// Allocate is a heartbeat: it says what is asked for and released, and brings what was
// given and what has ended. One goroutine calls it, at least every few seconds.
// ErrGone tells that the application has ended.
func (m *Master) Allocate(ctx context.Context, progress float32) (Beat, error) {
	var resynced *yarnpb.RegisterApplicationMasterResponse
	for range 3 { // a ResourceManager may be restarted again meanwhile
		b, err := m.allocate(ctx, progress)
		if !ipc.IsException(err, "ApplicationMasterNotRegisteredException") && !b.commands(yarnpb.AMCommand_AM_RESYNC) {
			b.Resynced = resynced
			if err == nil && b.commands(yarnpb.AMCommand_AM_SHUTDOWN) {
				err = fmt.Errorf("%w: the ResourceManager tells its master to end", ErrGone)
				return b, err
			}
			return b, explain("call the ResourceManager", err)
		}
		m.mu.Lock()
		contact := m.contact
		m.mu.Unlock()
		if resynced, err = m.Register(ctx, contact); err != nil {
			return Beat{}, fmt.Errorf("after a restart of the ResourceManager: %w", err)
		}
	}
	return Beat{}, errors.New("the ResourceManager asks again and again for the registration that it has")
}

func (m *Master) allocate(ctx context.Context, progress float32) (Beat, error) {
	m.mu.Lock()
	request := m.unanswered
	if request == nil {
		request = &yarnpb.AllocateRequest{
			Ask: newest(m.changed), Release: slices.Clone(m.releases[m.released:]), ResponseId: new(m.responseID), Progress: &progress,
			BlacklistRequest: m.exclusions(),
		}
		m.changed = nil
	}
	m.mu.Unlock()
	r, err := call(ctx, m.ipc, "allocate", request, &yarnpb.AllocateResponse{})
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ipc.Answered(err) {
		m.unanswered = request
		return Beat{}, err
	}
	m.unanswered = nil
	if err != nil {
		m.changed = append(m.unsaid(request.GetAsk()), m.changed...)
		return Beat{}, err
	}
	m.released, m.responseID = m.released+len(request.GetRelease()), r.GetResponseId()
	m.said(request.GetAsk())
	for _, n := range request.GetBlacklistRequest().GetBlacklistAdditions() {
		m.known[n] = true
	}
	for _, n := range request.GetBlacklistRequest().GetBlacklistRemovals() {
		delete(m.known, n)
	}
	for _, c := range r.GetAllocatedContainers() {
		delete(m.asks, c.GetAllocationRequestId())
		delete(m.told, c.GetAllocationRequestId())
	}
	for _, s := range r.GetCompletedContainerStatuses() {
		m.forget(s.GetContainerId())
	}
	b := Beat{AllocateResponse: r}
	b.Renewed = m.renewToken(r.GetAmRmToken())
	return b, nil
}

// said notes what the ResourceManager has heard. What was withdrawn meanwhile is taken
// back. It is called with mu held.
func (m *Master) said(requests []*yarnpb.ResourceRequest) {
	for _, q := range requests {
		id := q.GetAllocationRequestId()
		m.told[id] = q.GetNumContainers() > 0
		if _, wanted := m.asks[id]; m.told[id] && !wanted {
			q.NumContainers = proto.Int32(0)
			m.changed = append(m.changed, q)
		}
	}
}

// unsaid is what is still to be said of a heartbeat that was refused. It is called with mu
// held.
func (m *Master) unsaid(requests []*yarnpb.ResourceRequest) []*yarnpb.ResourceRequest {
	return slices.DeleteFunc(requests, func(q *yarnpb.ResourceRequest) bool {
		_, wanted := m.asks[q.GetAllocationRequestId()]
		return q.GetNumContainers() > 0 && !wanted
	})
}

// forget drops a release that is done. It is called with mu held.
func (m *Master) forget(id *yarnpb.ContainerId) {
	for i, r := range m.releases {
		if proto.Equal(r, id) {
			m.releases = slices.Delete(m.releases, i, i+1)
			if i < m.released {
				m.released--
			}
			return
		}
	}
}

// Finish ends the application in the ResourceManager's eyes, and with it what is left
// of its containers.
func (m *Master) Finish(ctx context.Context, status yarnpb.FinalApplicationStatus, diagnostics, trackingURL string) error {
	const what = "finish the application"
	request := &yarnpb.FinishApplicationMasterRequest{FinalApplicationStatus: &status, Diagnostics: &diagnostics, TrackingUrl: &trackingURL}
	m.mu.Lock()
	contact := m.contact
	m.mu.Unlock()
	for {
		r, err := call(ctx, m.ipc, "finishApplicationMaster", request, &yarnpb.FinishApplicationMasterResponse{})
		if ipc.IsException(err, "ApplicationMasterNotRegisteredException") { // a restarted ResourceManager's
			if _, err = m.Register(ctx, contact); err == nil {
				continue
			}
			return err
		}
		if err != nil || r.GetIsUnregistered() {
			return explain(what, err)
		}
		select {
		case <-ctx.Done():
			return explain(what, context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}

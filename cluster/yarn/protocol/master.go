package protocol

import (
	"cmp"
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

// State is what another process needs to continue as the same ApplicationMaster. It is a secret.
type State struct {
	Token credentials.Token // of kind credentials.AMRM
}

// Master is the connection of an ApplicationMaster to the ResourceManager's scheduler. One goroutine calls
// Allocate; the other methods are safe for concurrent use.
type Master struct {
	ipc    *ipc.Client
	config ipc.Config // without its token

	mu             sync.Mutex
	state          State                      // guarded by mu
	contact        Contact                    // guarded by mu: argument of the last Register
	responseID     int32                      // guarded by mu: of the last response
	requests       map[int64]ContainerRequest // guarded by mu: requests that are not allocated yet
	sent           map[int64]bool             // guarded by mu: requests that the ResourceManager has
	updates        []*yarnpb.ResourceRequest  // guarded by mu: resource requests of the next heartbeat
	releases       []*yarnpb.ContainerId      // guarded by mu: released containers that have not completed yet
	releasesSent   int                        // guarded by mu: number of releases that were sent
	excluded       map[string]bool            // guarded by mu: nodes on which nothing may be allocated
	sentExclusions map[string]bool            // guarded by mu: exclusions that the ResourceManager has

	// guarded by mu: a heartbeat without a response. The ResourceManager may have handled it; then it repeats
	// its response to the same response ID and ignores the rest of the heartbeat. So the heartbeat must be
	// repeated unchanged.
	unanswered *yarnpb.AllocateRequest
}

// NewMaster returns the master with a State. Calls are retried for retryFor while the ResourceManager is
// unreachable.
func NewMaster(conf *hadoopconf.Conf, s State, retryFor time.Duration) (*Master, error) {
	at, err := addresses(conf, schedulerService)
	if err != nil {
		return nil, err
	}
	config := ipc.Config{Protocol: schedulerService.protocol, Protections: protections(conf)}
	m := &Master{
		config: config, state: s, requests: map[int64]ContainerRequest{}, sent: map[int64]bool{}, excluded: map[string]bool{},
		sentExclusions: map[string]bool{},
	}
	config.Token = &s.Token
	m.ipc = ipc.NewClient(at, retryFor, config)
	return m, nil
}

// Open connects in advance of Register. If it fails, Register connects again.
func (m *Master) Open(ctx context.Context) error { return m.ipc.Open(ctx) }

// Close cancels pending calls and closes the connection. The application goes on.
func (m *Master) Close() error { return m.ipc.Close() }

// State returns the present state. It has changed when Allocate returns Renewed.
func (m *Master) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Contact is a master's address in the application's report. The zero value means that it has none.
type Contact struct {
	Host string
	Port int32
	Page string // URL of the status page, which the ResourceManager's proxy fetches
}

// Register registers the master. The response has the containers of earlier attempts and the tokens of their
// nodes. Register returns ErrRegistered or ErrGone if the application cannot be resumed.
func (m *Master) Register(ctx context.Context, at Contact) (*yarnpb.RegisterApplicationMasterResponse, error) {
	port := cmp.Or(at.Port, -1)
	r, err := call(ctx, m.ipc, "registerApplicationMaster", &yarnpb.RegisterApplicationMasterRequest{
		Host: &at.Host, RpcPort: &port, TrackingUrl: &at.Page,
	}, &yarnpb.RegisterApplicationMasterResponse{})
	if err != nil {
		return nil, explain("register with the ResourceManager", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.contact, m.responseID, m.releasesSent = at, 0, 0
	m.updates = nil
	clear(m.sent)
	clear(m.sentExclusions)
	m.unanswered = nil
	for _, id := range slices.Sorted(maps.Keys(m.requests)) {
		m.updates = append(m.updates, m.requests[id].resourceRequests(1)...)
	}
	return r, nil
}

// Release releases containers with the next heartbeat. They complete like other containers.
func (m *Master) Release(ids ...*yarnpb.ContainerId) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releases = append(m.releases, ids...)
}

// Exclude asks YARN, with the next heartbeat, to allocate nothing on the nodes with these hosts. Existing
// containers are kept.
func (m *Master) Exclude(nodes ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		m.excluded[n] = true
	}
}

// Include reverts Exclude.
func (m *Master) Include(nodes ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		delete(m.excluded, n)
	}
}

// blacklistRequest returns the exclusions that have changed since they were sent, or nil. It is called with
// mu held.
func (m *Master) blacklistRequest() *yarnpb.ResourceBlacklistRequest {
	r := &yarnpb.ResourceBlacklistRequest{}
	for _, n := range slices.Sorted(maps.Keys(m.excluded)) {
		if !m.sentExclusions[n] {
			r.BlacklistAdditions = append(r.BlacklistAdditions, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(m.sentExclusions)) {
		if !m.excluded[n] {
			r.BlacklistRemovals = append(r.BlacklistRemovals, n)
		}
	}
	if len(r.GetBlacklistAdditions())+len(r.GetBlacklistRemovals()) == 0 {
		return nil
	}
	return r
}

// Heartbeat is the response to a heartbeat.
type Heartbeat struct {
	*yarnpb.AllocateResponse
	// Renewed means that State has a new token, which must be saved.
	Renewed bool
	// Resynced is the response to a repeated registration, if the ResourceManager was restarted; otherwise
	// nil.
	Resynced *yarnpb.RegisterApplicationMasterResponse
}

// commands reports whether the response has the command c. A missing command, which an enumeration's default
// would hide, is none.
func (b Heartbeat) commands(c yarnpb.AMCommand) bool {
	return b.AllocateResponse != nil && b.AMCommand != nil && b.GetAMCommand() == c
}

// Allocate sends a heartbeat with the new requests and releases. The response has the allocated and
// completed containers. One goroutine must call it at least every few seconds. It returns ErrGone if the
// application has ended.
func (m *Master) Allocate(ctx context.Context, progress float32) (Heartbeat, error) {
	var resynced *yarnpb.RegisterApplicationMasterResponse
	for range 3 { // the ResourceManager may restart again meanwhile
		b, err := m.allocate(ctx, progress)
		if !ipc.IsException(err, "ApplicationMasterNotRegisteredException") && !b.commands(yarnpb.AMCommand_AM_RESYNC) {
			b.Resynced = resynced
			if err == nil && b.commands(yarnpb.AMCommand_AM_SHUTDOWN) {
				err = fmt.Errorf("%w: the ResourceManager commanded its ApplicationMaster to shut down, "+
					"because it was killed or another attempt runs", ErrGone)
				return b, err
			}
			return b, explain("call the ResourceManager", err)
		}
		m.mu.Lock()
		contact := m.contact
		m.mu.Unlock()
		if resynced, err = m.Register(ctx, contact); err != nil {
			return Heartbeat{}, fmt.Errorf("after a restart of the ResourceManager: %w", err)
		}
	}
	return Heartbeat{}, errors.New("the ResourceManager asks again and again for a registration that it has: see its log")
}

func (m *Master) allocate(ctx context.Context, progress float32) (Heartbeat, error) {
	m.mu.Lock()
	request := m.unanswered
	if request == nil {
		request = &yarnpb.AllocateRequest{
			Ask: latest(m.updates), Release: slices.Clone(m.releases[m.releasesSent:]), ResponseId: new(m.responseID),
			Progress: &progress, BlacklistRequest: m.blacklistRequest(),
		}
		m.updates = nil
	}
	m.mu.Unlock()
	r, err := call(ctx, m.ipc, "allocate", request, &yarnpb.AllocateResponse{})
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ipc.Answered(err) {
		m.unanswered = request
		return Heartbeat{}, err
	}
	m.unanswered = nil
	if err != nil {
		m.updates = append(m.requeue(request.GetAsk()), m.updates...)
		return Heartbeat{}, err
	}
	m.releasesSent, m.responseID = m.releasesSent+len(request.GetRelease()), r.GetResponseId()
	m.markSent(request.GetAsk())
	for _, n := range request.GetBlacklistRequest().GetBlacklistAdditions() {
		m.sentExclusions[n] = true
	}
	for _, n := range request.GetBlacklistRequest().GetBlacklistRemovals() {
		delete(m.sentExclusions, n)
	}
	for _, c := range r.GetAllocatedContainers() {
		delete(m.requests, c.GetAllocationRequestId())
		delete(m.sent, c.GetAllocationRequestId())
	}
	for _, s := range r.GetCompletedContainerStatuses() {
		m.dropRelease(s.GetContainerId())
	}
	b := Heartbeat{AllocateResponse: r}
	b.Renewed = m.renewToken(r.GetAmRmToken())
	return b, nil
}

// markSent records the requests that the ResourceManager has. If a request was withdrawn while the heartbeat
// was under way, the next heartbeat withdraws it. It is called with mu held.
func (m *Master) markSent(requests []*yarnpb.ResourceRequest) {
	for _, q := range requests {
		id := q.GetAllocationRequestId()
		m.sent[id] = q.GetNumContainers() > 0
		if _, wanted := m.requests[id]; m.sent[id] && !wanted {
			q.NumContainers = proto.Int32(0)
			m.updates = append(m.updates, q)
		}
	}
}

// requeue returns the requests of a rejected heartbeat that are still needed. It is called with mu held.
func (m *Master) requeue(requests []*yarnpb.ResourceRequest) []*yarnpb.ResourceRequest {
	return slices.DeleteFunc(requests, func(q *yarnpb.ResourceRequest) bool {
		_, wanted := m.requests[q.GetAllocationRequestId()]
		return q.GetNumContainers() > 0 && !wanted
	})
}

// dropRelease removes a release whose container has completed. It is called with mu held.
func (m *Master) dropRelease(id *yarnpb.ContainerId) {
	for i, r := range m.releases {
		if proto.Equal(r, id) {
			m.releases = slices.Delete(m.releases, i, i+1)
			if i < m.releasesSent {
				m.releasesSent--
			}
			return
		}
	}
}

// Finish unregisters the master with a final status, which ends the application and its containers.
func (m *Master) Finish(ctx context.Context, status yarnpb.FinalApplicationStatus,
	diagnostics, trackingURL string,
) error {
	const action = "finish the application"
	request := &yarnpb.FinishApplicationMasterRequest{
		FinalApplicationStatus: &status, Diagnostics: &diagnostics, TrackingUrl: &trackingURL,
	}
	m.mu.Lock()
	contact := m.contact
	m.mu.Unlock()
	for {
		r, err := call(ctx, m.ipc, "finishApplicationMaster", request, &yarnpb.FinishApplicationMasterResponse{})
		if ipc.IsException(err, "ApplicationMasterNotRegisteredException") { // the ResourceManager was restarted
			if _, err = m.Register(ctx, contact); err == nil {
				continue
			}
			return err
		}
		if err != nil || r.GetIsUnregistered() {
			return explain(action, err)
		}
		select {
		case <-ctx.Done():
			return explain(action, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

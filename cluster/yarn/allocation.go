package yarn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/gang"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// saved is the state that the next driver needs. It holds the AMRM token, which is a secret.
type saved struct {
	Application  string                               `json:"application"`
	State        protocol.State                       `json:"state"`
	Program      cachedFile                           `json:"program"`
	Executors    map[cluster.ExecutorID]savedExecutor `json:"executors"`
	Excluded     []string                             `json:"left_out,omitempty"` // node names
	Containers   []containerlogs.Location             `json:"places,omitempty"`
	Applications []cluster.Application                `json:"leases,omitempty"`
	Folder       bool                                 `json:"folder,omitempty"`
	Backoff      gang.Backoff                         `json:"turns"`
}

// savedExecutor is an executor's newest attempt and its container, if it has one.
type savedExecutor struct {
	Attempt   int    `json:"attempt"`
	Container []byte `json:"container,omitempty"` // a yarnpb.ContainerId
	Web       string `json:"web,omitempty"`       // address of its node's web interface
	RequestID int64  `json:"wish,omitempty"`      // of a request that may still be with YARN
}

// executor is the state of one executor: its container, or the request for one.
type executor struct {
	request           cluster.ExecutorRequest
	priority          int32 // of its container kind; YARN keeps one container size for each priority
	attempt           int
	requestID         int64 // allocation request ID of the pending request; 0 if there is none
	requestedAt       time.Time
	pendingReason     string            // why the request is pending, as reported last
	container         *yarnpb.Container // nil before it is allocated and after it completed
	launched          time.Time         // when its agent was started; zero if an earlier driver started it
	joined            bool              // the container's agent has joined
	unfit             string            // why the agent that joined cannot be used; "" if it can
	driver            string            // the driver's address in the agent's configuration
	driverUnreachable bool              // an agent of this executor could not dial the driver
	web               string            // address of the web interface of the last container's node
	lastContainer     *yarnpb.ContainerId
}

// allocation is one YARN application. If an unmanaged one ends too early, it is replaced by another.
type allocation struct {
	site    site.Site
	req     cluster.Request
	attempt *Attempt // nil if the application is unmanaged
	events  chan cluster.Event
	background
	queueState // used by the heartbeat goroutine only

	publication

	mu         sync.Mutex
	app        application  // guarded by mu
	binary                  // guarded by mu
	requests                // guarded by mu
	history                 // guarded by mu
	exclusions              // guarded by mu
	backoff    gang.Backoff // guarded by mu
	released   bool         // guarded by mu
}

// publication is the state of the driver's address on HDFS.
type publication struct {
	publishing sync.Mutex // held while the address is written or removed; locked before the allocation's mu
	// Guarded by the allocation's mu: the application has a folder on HDFS since the driver has moved.
	folder bool
}

// background is the work that goes on until Release.
type background struct {
	ctx  context.Context // canceled by stop
	stop context.CancelFunc
	work sync.WaitGroup // counts the goroutines
	wake chan struct{}  // asks for a heartbeat at once; capacity 1
}

// queueState records why the scheduler allocates nothing.
type queueState struct {
	inactive  string    // why the scheduler has not activated the application; "" if it has
	queueRead time.Time // when the queue's state was last read
	gang      gang.Detector
}

// binary is this program's file on HDFS, from which nodes localize it.
type binary struct {
	program   cachedFile
	shippedAt time.Time // when program was uploaded; zero if an earlier driver did it
}

// requests are the executors and their container requests.
type requests struct {
	executors     map[cluster.ExecutorID]*executor
	lastRequestID int64 // allocation request ID of the last request
}

// history lists the containers and applications that the allocation has used, oldest first.
type history struct {
	containers   []containerlogs.Location
	applications []cluster.Application
}

// exclusions are the nodes on which containers failed before their agents joined.
type exclusions struct {
	failures map[string]int    // per node, consecutive containers whose agents did not join
	excluded map[string]bool   // nodes that YARN is asked not to use
	avoided  map[string]string // those of them whose hosts do not answer, by the host's name
}

func newAllocation(s site.Site, req cluster.Request, app application, from saved) *allocation {
	a := &allocation{
		site: s, req: req, app: app, events: make(chan cluster.Event, 4*len(req.Executors)+16),
		background: background{wake: make(chan struct{}, 1)},
		queueState: queueState{gang: gang.NewDetector(time.Duration(req.Reserve.GetTimeoutMillis()) * time.Millisecond)},
		binary:     binary{program: from.Program},
		// Larger than an earlier driver's IDs.
		requests:   requests{executors: map[cluster.ExecutorID]*executor{}, lastRequestID: time.Now().UnixMilli()},
		history:    history{containers: from.Containers, applications: from.Applications},
		exclusions: exclusions{failures: map[string]int{}, excluded: map[string]bool{}, avoided: map[string]string{}},
		backoff:    from.Backoff, publication: publication{folder: from.Folder},
	}
	for _, node := range from.Excluded {
		a.excluded[node] = true
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.addApplication(app.id)
	priorities := map[kind]int32{} // from 1 on, in the order of the executors
	for _, e := range req.Executors {
		k := kindOf(e.Each)
		if priorities[k] == 0 {
			priorities[k] = int32(len(priorities) + 1)
		}
		x := &executor{request: e, priority: priorities[k], attempt: -1}
		if old, ok := from.Executors[e.ID]; ok {
			x.attempt, x.web, x.requestID = old.Attempt, old.Web, old.RequestID
			if id := (&yarnpb.ContainerId{}); len(old.Container) > 0 && proto.Unmarshal(old.Container, id) == nil {
				x.lastContainer = id
			}
		}
		a.executors[e.ID] = x
	}
	return a
}

// start starts the allocation's goroutine.
func (a *allocation) start() { a.work.Go(a.run) }

// ID returns the application's ID, or "" while an ended application is being replaced.
func (a *allocation) ID() string {
	if id := a.current().id; id != nil {
		return protocol.ApplicationName(id)
	}
	return ""
}

// Events reports containers that were allocated and that were lost.
func (a *allocation) Events() <-chan cluster.Event { return a.events }

// emit sends events, unless the allocation is released.
func (a *allocation) emit(events ...cluster.Event) {
	for _, e := range events {
		select {
		case a.events <- e:
		case <-a.ctx.Done():
		}
	}
}

// requestContainer requests a container for an executor's next attempt, and releases the one it has.
func (a *allocation) requestContainer(id cluster.ExecutorID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.executors[id]
	a.releaseContainer(x) // it may have got another since the caller released it
	a.nextAttempt(x, time.Now())
	if a.app.master == nil || !a.backoff.Until.IsZero() {
		return // becomeMaster or askAgain sends the request
	}
	a.app.master.Request(a.containerRequest(x))
	a.beatNow()
}

// nextAttempt begins an executor's next attempt and assigns its request ID. It is called with mu held.
func (a *allocation) nextAttempt(x *executor, now time.Time) {
	x.attempt++
	a.lastRequestID++
	x.requestID, x.requestedAt, x.pendingReason, x.joined, x.unfit = a.lastRequestID, now, "", false, ""
}

// beatNow makes the next heartbeat go out at once.
func (a *allocation) beatNow() {
	select {
	case a.wake <- struct{}{}:
	default: // a heartbeat is due already
	}
}

// containerRequest returns the container request of an executor. It is called with mu held.
func (a *allocation) containerRequest(x *executor) protocol.ContainerRequest {
	near := a.app.near[x.request.ID]
	if a.excluded[near.Host] {
		near = protocol.Locality{}
	}
	return protocol.ContainerRequest{
		ID: x.requestID, Priority: x.priority, Resource: resource(x.request.Each),
		Label: x.request.Each.GetNodeLabel(), Near: near,
	}
}

// kind is a container's size and node label.
type kind struct {
	memory, cores, gpus int64
	label               string
}

func kindOf(each *clusterpb.Resources) kind {
	r := resource(each)
	return kind{r.GetMemory(), int64(r.GetVirtualCores()), gpus(r), each.GetNodeLabel()}
}

// adopt takes over the running containers of an earlier driver and requests containers for the other
// executors. It is called before start.
func (a *allocation) adopt(r *yarnpb.RegisterApplicationMasterResponse) {
	a.app.nodes.Tokens(r.GetNmTokensFromPreviousAttempts())
	a.app.master.Exclude(slices.Collect(maps.Keys(a.excluded))...)
	living := map[string]*yarnpb.Container{}
	for _, c := range r.GetContainersFromPreviousAttempts() {
		living[protocol.ContainerName(c.GetId())] = c
	}
	for id, x := range a.executors {
		if x.lastContainer != nil {
			name := protocol.ContainerName(x.lastContainer)
			if c := living[name]; c != nil {
				delete(living, name)
				x.container, x.joined, x.requestID = c, true, 0
				a.emit(cluster.Granted{Executor: id, Attempt: x.attempt, Host: c.GetNodeId().GetHost(), Recovered: true})
				continue
			}
		}
		if x.requestID != 0 { // a container that YARN allocates for it must be released
			a.app.master.WithdrawEarlier(a.containerRequest(x))
			x.requestID = 0
		}
		a.requestContainer(id)
		a.emit(cluster.Reallocated{Executor: id, Attempt: x.attempt})
	}
	for _, c := range living { // no executor owns them
		a.app.master.Release(c.GetId())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.countWhole()
}

// Replace releases an executor's container and requests another one.
func (a *allocation) Replace(ctx context.Context, id cluster.ExecutorID) error {
	a.refresh(ctx)
	a.mu.Lock()
	x, released := a.executors[id], a.released
	if x == nil || released {
		a.mu.Unlock()
		return fmt.Errorf("replace executor %s: there is no such executor any more, or the cluster is being released", id)
	}
	node, cause := "", x.unfit
	if cause != "" { // otherwise the node is not to blame: the agent was lost, or the user reset the executor
		node = x.unjoinedNode()
	}
	a.releaseContainer(x)
	a.mu.Unlock()
	if node != "" {
		a.countFailure(node, cause)
	}
	a.requestContainer(id)
	return nil
}

// refresh uploads the program again if the file on HDFS may have been cleaned up.
func (a *allocation) refresh(ctx context.Context) {
	a.mu.Lock()
	old := time.Since(a.shippedAt) > cacheAge/2
	a.mu.Unlock()
	if !old {
		return
	}
	program, err := ship(ctx, a.site, a.req.Program)
	if err != nil {
		return // the file may still be there; if not, the container's diagnostics report it
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.program, a.shippedAt = program, time.Now()
}

// releaseContainer releases an executor's container and withdraws its request. It is called with mu held.
func (a *allocation) releaseContainer(x *executor) {
	if m := a.app.master; m != nil {
		if x.container != nil {
			m.Release(x.container.GetId())
		}
		if x.requestID != 0 {
			m.Withdraw(x.requestID)
		}
	}
	x.container, x.requestID = nil, 0
}

// Saved returns the state for the next driver. It holds secrets: the caller stores it with mode 0600.
func (a *allocation) Saved() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := saved{
		Program: a.program, Executors: map[cluster.ExecutorID]savedExecutor{}, Containers: a.containers,
		Applications: a.applications, Backoff: a.backoff, Excluded: slices.Sorted(maps.Keys(a.excluded)), Folder: a.folder,
	}
	if a.app.id != nil {
		s.Application = protocol.ApplicationName(a.app.id)
	}
	if a.app.master != nil && a.attempt == nil { // each attempt gets its own token from YARN
		s.State = a.app.master.State()
	}
	for id, x := range maps.All(a.executors) {
		e := savedExecutor{Attempt: x.attempt, Web: x.web, RequestID: x.requestID}
		if x.container != nil {
			b, err := proto.Marshal(x.container.GetId())
			if err != nil {
				panic(err) // plain data
			}
			e.Container = b
		}
		s.Executors[id] = e
	}
	return plainJSON(s)
}

// Release finishes the application with the given final status, which ends its containers.
func (a *allocation) Release(ctx context.Context, status cluster.FinalStatus, diagnostics string) error {
	a.mu.Lock()
	if a.released {
		a.mu.Unlock()
		return nil
	}
	a.released = true
	a.mu.Unlock()
	a.stop()
	a.work.Wait()
	app := a.current()
	if a.attempt != nil {
		if app.id == nil {
			return nil // the application was not finished by this attempt: another attempt may continue
		}
		// Remove the saved state first: YARN may kill this process as soon as the application is finished.
		a.attempt.removeState(ctx)
	}
	err := errors.Join(a.removeAddress(ctx, app), app.finish(ctx, a.site, finalStatusOf(status, diagnostics)))
	if err == nil {
		a.endApplication("finished")
	}
	return err
}

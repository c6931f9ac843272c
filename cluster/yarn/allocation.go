package yarn

import (
	"context"
	"encoding/json"
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

// saved is what another driver needs, and what is secret of it.
type saved struct {
	Application string                               `json:"application"`
	State       protocol.State                       `json:"state"`
	Program     shipped                              `json:"program"`
	Executors   map[cluster.ExecutorID]savedExecutor `json:"executors"`
	LeftOut     []string                             `json:"left_out,omitempty"` // nodes
	Places      []containerlogs.Location             `json:"places,omitempty"`
	Leases      []cluster.Application                `json:"leases,omitempty"`
	Folder      bool                                 `json:"folder,omitempty"`
	Turns       gang.Backoff                         `json:"turns"`
}

// savedExecutor is an executor's newest attempt and its container, if it has one.
type savedExecutor struct {
	Attempt   int    `json:"attempt"`
	Container []byte `json:"container,omitempty"` // a yarnpb.ContainerId
	Web       string `json:"web,omitempty"`       // its node's web interface
	Wish      int64  `json:"wish,omitempty"`      // that YARN may have yet
}

// executor is one as it stands.
type executor struct {
	request   cluster.ExecutorRequest
	priority  int32 // of its kind: YARN keeps one size a priority
	attempt   int
	wish      int64             // of the container that is asked for; 0 for none
	since     time.Time         // of the wish
	why       string            // it waits, as was told last
	container *yarnpb.Container // nil until it was given, and after its end
	launched  time.Time         // when its agent was started; zero for an earlier driver's
	came      bool              // its agent is known to have called
	unfit     string            // why that is of no use
	driver    string            // the address that its agent was given
	cutOff    bool              // an agent of it could not dial the driver
	web       string            // of the last container's node
	last      *yarnpb.ContainerId
}

// allocation is one application, and after its end another, unless it is managed.
type allocation struct {
	site    site.Site
	req     cluster.Request
	attempt *Attempt // nil: the master is not managed
	events  chan cluster.Event
	background
	queueState // of the goroutine beat

	moves

	mu       sync.Mutex
	app      application  // guarded by mu
	binary                // guarded by mu
	requests              // guarded by mu
	history               // guarded by mu
	excluded              // guarded by mu
	backoff  gang.Backoff // guarded by mu
	released bool         // guarded by mu
}

// moves are of the driver's address on HDFS.
type moves struct {
	moving sync.Mutex // held while that is written or removed; before the allocation's mu
	folder bool       // guarded by the allocation's mu: the driver has moved, and its application has a folder on HDFS
}

// background is what goes on until Release.
type background struct {
	ctx  context.Context // of all of it; ended by stop
	stop context.CancelFunc
	work sync.WaitGroup // the goroutines
	wake chan struct{}  // tells beat of new wishes
}

// queueState is what heartbeats tell of why nothing comes.
type queueState struct {
	held  string    // why the scheduler gives the application nothing yet
	asked time.Time // when the queue was asked for that
	gang  gang.Detector
}

// binary is this program where nodes fetch it.
type binary struct {
	program shipped
	shipped time.Time // when program was; zero for an earlier driver's
}

// requests are the executors and what is asked for them.
type requests struct {
	executors map[cluster.ExecutorID]*executor
	wishes    int64 // the last wish's name
}

// history is what an allocation has been, oldest first.
type history struct {
	places []containerlogs.Location // containers that were used
	leases []cluster.Application
}

// excluded are the nodes from which no agents come.
type excluded struct {
	strikes map[string]int  // containers of a node in a row from which no agent came
	leftOut map[string]bool // nodes that are not asked for
}

func newAllocation(s site.Site, req cluster.Request, app application, from saved) *allocation {
	a := &allocation{
		site: s, req: req, app: app, events: make(chan cluster.Event, 4*len(req.Executors)+16),
		background: background{wake: make(chan struct{}, 1)},
		queueState: queueState{gang: gang.NewDetector(time.Duration(req.Reserve.GetTimeoutMillis()) * time.Millisecond)},
		binary:     binary{program: from.Program},
		requests:   requests{executors: map[cluster.ExecutorID]*executor{}, wishes: time.Now().UnixMilli()}, // another than an earlier driver's
		history:    history{places: from.Places, leases: from.Leases},
		excluded:   excluded{strikes: map[string]int{}, leftOut: map[string]bool{}},
		backoff:    from.Turns, moves: moves{folder: from.Folder},
	}
	for _, node := range from.LeftOut {
		a.leftOut[node] = true
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.lease(app.id)
	priorities := map[kind]int32{} // from 1 on, in the order of the executors
	for _, e := range req.Executors {
		k := kindOf(e.Each)
		if priorities[k] == 0 {
			priorities[k] = int32(len(priorities) + 1)
		}
		x := &executor{request: e, priority: priorities[k], attempt: -1}
		if old, ok := from.Executors[e.ID]; ok {
			x.attempt, x.web, x.wish = old.Attempt, old.Web, old.Wish
			if id := (&yarnpb.ContainerId{}); len(old.Container) > 0 && proto.Unmarshal(old.Container, id) == nil {
				x.last = id
			}
		}
		a.executors[e.ID] = x
	}
	return a
}

// begin starts what goes on until Release.
func (a *allocation) begin() { a.work.Go(a.run) }

// ID is the application's name, "" while another is being made.
func (a *allocation) ID() string {
	if id := a.current().id; id != nil {
		return protocol.ApplicationName(id)
	}
	return ""
}

// Events tells of containers that were given and that ended.
func (a *allocation) Events() <-chan cluster.Event { return a.events }

func (a *allocation) tell(e cluster.Event) {
	select {
	case a.events <- e:
	case <-a.ctx.Done():
	}
}

// want asks for a container for an executor's next attempt.
func (a *allocation) want(id cluster.ExecutorID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.executors[id]
	a.giveBack(x) // what came since it was given back
	a.wish(x, time.Now())
	if a.app.master == nil || !a.backoff.Until.IsZero() {
		return // it asks when it is registered, or its rest is over
	}
	a.app.master.Ask(a.ask(x))
	a.rouse()
}

// wish names what is to be asked for an executor's next attempt. It is called with mu held.
func (a *allocation) wish(x *executor, now time.Time) {
	x.attempt++
	a.wishes++
	x.wish, x.since, x.why, x.came, x.unfit = a.wishes, now, "", false, ""
}

// rouse has the next heartbeat come at once.
func (a *allocation) rouse() {
	select {
	case a.wake <- struct{}{}:
	default: // it was told already
	}
}

// ask is an executor's wish. It is called with mu held.
func (a *allocation) ask(x *executor) protocol.Ask {
	near := a.app.near[x.request.ID]
	if a.leftOut[near.Host] {
		near = protocol.Spot{}
	}
	return protocol.Ask{ID: x.wish, Priority: x.priority, Resource: resource(x.request.Each), Label: x.request.Each.GetNodeLabel(), Near: near}
}

// kind is a size of container and where it is to be.
type kind struct {
	memory, cores, gpus int64
	label               string
}

func kindOf(each *clusterpb.Resources) kind {
	r := resource(each)
	return kind{r.GetMemory(), int64(r.GetVirtualCores()), gpus(r), each.GetNodeLabel()}
}

// adopt takes back the containers that live of an earlier driver, and asks for others
// in the place of those that do not. It is called before begin.
func (a *allocation) adopt(r *yarnpb.RegisterApplicationMasterResponse) {
	a.app.nodes.Tokens(r.GetNmTokensFromPreviousAttempts())
	a.app.master.Exclude(slices.Collect(maps.Keys(a.leftOut))...)
	living := map[string]*yarnpb.Container{}
	for _, c := range r.GetContainersFromPreviousAttempts() {
		living[protocol.ContainerName(c.GetId())] = c
	}
	for id, x := range a.executors {
		if x.last != nil {
			name := protocol.ContainerName(x.last)
			if c := living[name]; c != nil {
				delete(living, name)
				x.container, x.came, x.wish = c, true, 0
				a.tell(cluster.Granted{Executor: id, Attempt: x.attempt, Host: c.GetNodeId().GetHost(), Recovered: true})
				continue
			}
		}
		if x.wish != 0 { // what would come of it is nobody's
			a.app.master.Disown(a.ask(x))
			x.wish = 0
		}
		a.want(id)
		a.tell(cluster.Reallocated{Executor: id, Attempt: x.attempt})
	}
	for _, c := range living { // nobody knows what runs there
		a.app.master.Release(c.GetId())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.countWhole()
}

// Replace ends what is left of an executor and asks for another container.
func (a *allocation) Replace(ctx context.Context, id cluster.ExecutorID) error {
	a.refresh(ctx)
	a.mu.Lock()
	x, released := a.executors[id], a.released
	if x == nil || released {
		a.mu.Unlock()
		return fmt.Errorf("replace executor %s: %w", id, errors.New("there is none, or it is released"))
	}
	node, cause := "", x.unfit
	if cause != "" { // else it is no doing of the node's: it was lost, or a person's reset replaces it
		node = x.useless()
	}
	a.giveBack(x)
	a.mu.Unlock()
	if node != "" {
		a.strike(node, cause)
	}
	a.want(id)
	return nil
}

// refresh sees to it that the program is still where nodes fetch it.
func (a *allocation) refresh(ctx context.Context) {
	a.mu.Lock()
	old := time.Since(a.shipped) > cacheAge/2
	a.mu.Unlock()
	if !old {
		return
	}
	program, err := ship(ctx, a.site, a.req.Program)
	if err != nil {
		return // the nodes may have it, or say what is missing
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.program, a.shipped = program, time.Now()
}

// giveBack ends what an executor has or waits for. It is called with mu held.
func (a *allocation) giveBack(x *executor) {
	if m := a.app.master; m != nil {
		if x.container != nil {
			m.Release(x.container.GetId())
		}
		if x.wish != 0 {
			m.Withdraw(x.wish)
		}
	}
	x.container, x.wish = nil, 0
}

// Saved is for another driver, in the 0600 state.
func (a *allocation) Saved() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := saved{
		Program: a.program, Executors: map[cluster.ExecutorID]savedExecutor{}, Places: a.places, Leases: a.leases, Turns: a.backoff,
		LeftOut: slices.Sorted(maps.Keys(a.leftOut)), Folder: a.folder,
	}
	if a.app.id != nil {
		s.Application = protocol.ApplicationName(a.app.id)
	}
	if a.app.master != nil && a.attempt == nil { // another attempt has a token of its own
		s.State = a.app.master.State()
	}
	for id, x := range maps.All(a.executors) {
		e := savedExecutor{Attempt: x.attempt, Web: x.web, Wish: x.wish}
		if x.container != nil {
			b, err := proto.Marshal(x.container.GetId())
			if err != nil {
				panic(err) // plain data
			}
			e.Container = b
		}
		s.Executors[id] = e
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // plain data
	}
	return b
}

// Release finishes the application, with which its containers end. YARN shows how it ended.
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
			return nil // its end was not of this attempt's making: another may go on
		}
		// First what is kept: YARN may end this process when the application is finished.
		a.attempt.ended(ctx)
	}
	err := errors.Join(a.forgetMoved(ctx, app), app.end(ctx, a.site, endingOf(status, diagnostics)))
	if err == nil {
		a.leaseOver("finished")
	}
	return err
}

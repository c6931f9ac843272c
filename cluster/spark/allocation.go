package spark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/internal/unixsock"
)

// allocation is the agents of one cluster in one Spark session.
type allocation struct {
	// not changed after newAllocation
	backend *Backend
	req     cluster.Request
	old     saved
	hostListener
	events  chan cluster.Event
	stop    chan struct{} // closed by Release
	working context.Context
	cancel  context.CancelFunc

	work sync.WaitGroup // the listener and launches; Release waits for them

	mu       sync.Mutex
	current                             // guarded by mu
	attempts map[cluster.ExecutorID]int // guarded by mu
	released bool                       // guarded by mu

	opening sync.Mutex // serialises making a session
}

// saved is the state for a later driver.
type saved struct {
	Session     state.Process              `json:"session"`
	Key         string                     `json:"key"` // identifies that session
	Application string                     `json:"application"`
	Attempts    map[cluster.ExecutorID]int `json:"attempts"`
}

func newAllocation(b *Backend, req cluster.Request, old saved) (*allocation, error) {
	socket, err := state.HostSocket(req.Cluster)
	if err != nil {
		return nil, err
	}
	ln, err := unixsock.Listen(socket)
	if err != nil {
		return nil, fmt.Errorf("open the socket for the Spark session: %w", err)
	}
	a := &allocation{
		backend: b, req: req, old: old, hostListener: hostListener{socket: socket, ln: ln, hostEvents: make(chan hostEvent)},
		events: make(chan cluster.Event, 4*len(req.Executors)+16), stop: make(chan struct{}),
		current: current{changed: make(chan struct{})}, attempts: map[cluster.ExecutorID]int{},
	}
	a.working, a.cancel = context.WithCancel(context.Background())
	maps.Copy(a.attempts, old.Attempts)
	a.work.Go(a.serve)
	return a, nil
}

// takeoverWait returns how long a session waits for another driver.
func (a *allocation) takeoverWait() time.Duration {
	const grace = time.Minute
	if idle := a.req.Reserve.GetIdleMillis(); idle > 0 {
		return grace + time.Duration(idle)*time.Millisecond
	}
	return 400 * 24 * time.Hour // as long as certificates are valid
}

// serve serves one host after the other until Release.
func (a *allocation) serve() {
	for {
		conn, err := a.ln.Accept()
		if err != nil {
			return
		}
		if !a.serveHost(conn) {
			return
		}
	}
}

// serveHost handles one host's events until it ends; it returns false after Release.
func (a *allocation) serveHost(conn net.Conn) bool {
	h := newHost(conn, a.hostEvents)
	defer conn.Close()
	for {
		select {
		case e := <-a.hostEvents:
			a.handleEvent(h, e)
		case <-h.gone:
			a.hostGone(h)
			return true
		case <-a.stop:
			conn.Close()
			for { // the reader may be sending an event
				select {
				case <-a.hostEvents:
				case <-h.gone:
					return false
				}
			}
		}
	}
}

func (a *allocation) handleEvent(h *host, e hostEvent) {
	switch e.Event {
	case "hello":
		a.accept(h, e)
	case "pending":
		for _, id := range e.Executors {
			a.emit(cluster.Pending{Executor: cluster.ExecutorID(id), Why: e.Why})
		}
	case "ended":
		if onNotebookSession(a.req.Reserve) {
			a.mu.Lock()
			a.endedWhy = e.Why
			close(a.changed)
			a.changed = make(chan struct{})
			a.mu.Unlock()
			a.emit(cluster.Terminated{Cause: e.Why})
			return
		}
		a.mu.Lock()
		a.host = nil
		a.mu.Unlock()
		a.loseAll(e.Why) // its process ends; the next launch makes another session
	}
}

// accept makes h the cluster's host, unless it has another key: then a driver was killed while
// it made that session, which is stopped.
func (a *allocation) accept(h *host, e hostEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !onNotebookSession(a.req.Reserve) && e.Key != a.expectedKey() {
		_ = h.send(map[string]any{"id": 0, "op": "stop"}) // best effort: it connects again
		h.conn.Close()
		return
	}
	a.host, a.hello = h, e
	close(a.changed)
	a.changed = make(chan struct{})
}

// expectedKey returns the key of the current or the last driver's session. Caller holds mu.
func (a *allocation) expectedKey() string {
	if a.session != nil {
		return a.session.key
	}
	return a.old.Key
}

// hostGone handles the end of a host's connection. If the driver made its session, all
// executors are lost.
func (a *allocation) hostGone(h *host) {
	a.mu.Lock()
	over := a.host != h || a.released // or its end was reported before
	if a.host == h {
		a.host = nil
	}
	a.mu.Unlock()
	switch {
	case over:
	case onNotebookSession(a.req.Reserve):
		a.emit(cluster.Terminated{Cause: "the notebook's SparkSession that it was on is over; make the session again"})
	default:
		a.loseAll("the Spark session is over: " + a.endReason())
	}
}

// all returns every executor with its current attempt.
func (a *allocation) all() map[cluster.ExecutorID]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[cluster.ExecutorID]int{}
	for _, e := range a.req.Executors {
		all[e.ID] = a.attempts[e.ID]
	}
	return all
}

func (a *allocation) emit(e cluster.Event) {
	select {
	case a.events <- e:
	case <-a.stop:
	}
}

// loseAll reports every executor as lost.
func (a *allocation) loseAll(why string) {
	all := a.all()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		a.emit(cluster.Lost{Executor: id, Attempt: all[id], Cause: why})
	}
}

// started is the answer of a Spark task that started an agent.
type started struct {
	Executor string `json:"executor"`
	Attempt  int    `json:"attempt"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Error    string `json:"error"`
}

// launch starts agents, for the given attempts unless they were replaced meanwhile, and reports
// the results. It makes a new session first if the driver's session has ended, which may take
// long.
func (a *allocation) launch(wanted map[cluster.ExecutorID]int) {
	a.work.Go(func() {
		var agents []started
		ctx, cancel := context.WithTimeout(a.working, a.launchTimeout())
		err := a.ensureSession(ctx)
		cancel()
		if err == nil {
			agents, err = a.startAgents(wanted)
		}
		if err != nil {
			for _, id := range slices.Sorted(maps.Keys(wanted)) {
				a.emit(cluster.Lost{Executor: id, Attempt: wanted[id], By: cluster.LostByError, Cause: err.Error()})
			}
			return
		}
		for _, s := range agents {
			id := cluster.ExecutorID(s.Executor)
			switch {
			case s.Error != "":
				a.emit(cluster.Lost{Executor: id, Attempt: s.Attempt, By: cluster.LostByError, Cause: s.Error})
			case a.holdsStage(): // the stage has ended, and the agent with it
				a.emit(cluster.Lost{Executor: id, Attempt: s.Attempt, Cause: "its agent ended"})
			default:
				a.emit(cluster.Granted{Executor: id, Attempt: s.Attempt, Host: s.Host, PID: s.PID})
			}
		}
	})
}

// launchTimeout bounds the time until Spark has a session, or slots for agents.
func (a *allocation) launchTimeout() time.Duration {
	return time.Duration(a.req.Reserve.GetTimeoutMillis())*time.Millisecond + time.Minute
}

// startAgents has the host start agents.
func (a *allocation) startAgents(wanted map[cluster.ExecutorID]int) ([]started, error) {
	type agent struct {
		Executor cluster.ExecutorID `json:"executor"`
		Attempt  int                `json:"attempt"`
		Config   json.RawMessage    `json:"config"`
	}
	a.mu.Lock()
	h := a.host
	maps.DeleteFunc(wanted, func(id cluster.ExecutorID, attempt int) bool { return a.attempts[id] != attempt })
	a.mu.Unlock()
	if h == nil {
		return nil, errHostGone
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	agents := make([]agent, 0, len(wanted))
	coordinator := ""
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		config, err := a.req.AgentConfig(id, wanted[id])
		if err != nil {
			return nil, err
		}
		encoded, err := config.Encode()
		if err != nil {
			return nil, err
		}
		coordinator = config.GetDriver().GetCoordinator()
		agents = append(agents, agent{id, wanted[id], encoded})
	}
	wait := a.launchTimeout()
	ctx, cancel := context.WithTimeout(a.working, wait+startTimeout) // the host times out first and says what Spark lacks
	hold := a.holdsStage()
	if hold { // the host answers when the agents have ended
		cancel()
		ctx, cancel = context.WithCancel(a.working)
	}
	defer cancel()
	var said []started
	err := h.call(ctx, "launch", map[string]any{
		"agents": agents, "program": a.req.Program, "coordinator": coordinator, "name": a.req.Cluster,
		"identity": a.req.Identity, "python": a.req.Reserve.GetPython(), "hold": hold, "gpus": sizeOf(a.req.Executors).gpus,
		"seconds": wait.Seconds(), "pack": a.req.Reserve.GetPack(),
	}, &said)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no agent was started within %v: Spark does not run the stage that starts them, because it lacks "+
			"free cores, memory or GPUs: see the Spark UI, and reserve fewer or smaller executors", wait+startTimeout)
	}
	return said, err
}

// ID implements cluster.Allocation: it is Spark's application ID, or the session's name if that
// has none.
func (a *allocation) ID() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hello.Application
}

// Events implements cluster.Allocation.
func (a *allocation) Events() <-chan cluster.Event { return a.events }

// Replace implements cluster.Allocation: it requests a slot for another agent. The coordinator
// refuses the old agent, which then ends.
func (a *allocation) Replace(_ context.Context, id cluster.ExecutorID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.released {
		return errors.New("the cluster is being released, so no more agents are started")
	}
	a.attempts[id]++
	a.launch(map[cluster.ExecutorID]int{id: a.attempts[id]}) // under mu, before Release waits for work
	return nil
}

// ensureSession makes a new session if the driver's session has ended.
func (a *allocation) ensureSession(ctx context.Context) error {
	a.opening.Lock()
	defer a.opening.Unlock()
	a.mu.Lock()
	here := a.host != nil
	a.mu.Unlock()
	switch {
	case here:
		return nil
	case onNotebookSession(a.req.Reserve):
		return errors.New("the notebook's SparkSession is over, and the cluster with it: make the session again and reserve")
	case ctx.Err() != nil: // cancelled while another launch tried
		return a.outOfTime(ctx)
	}
	if err := reachMaster(ctx, a.req.Reserve); err != nil {
		return err
	}
	return a.open(ctx)
}

// Logs implements cluster.AgentLogs. It only says where the log is: Spark gives no access to
// it.
func (a *allocation) Logs(context.Context, cluster.ExecutorID) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("the agent's log is on its executor, below tfcluster-UID in its temporary " +
		"folder; Spark's own log of the task is in the Spark UI\n")), nil
}

// Saved implements cluster.Allocation.
func (a *allocation) Saved() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := saved{Application: a.hello.Application, Attempts: a.attempts}
	if a.session != nil {
		s.Session, s.Key = a.session.process, a.session.key
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot fail for this type
	}
	return b
}

// Release implements cluster.Allocation: the host ends a session that the driver made; the
// notebook's goes on.
func (a *allocation) Release(ctx context.Context, _ cluster.FinalStatus, _ string) error {
	a.mu.Lock()
	if a.released {
		a.mu.Unlock()
		return nil
	}
	a.released = true
	h, s := a.host, a.session
	a.mu.Unlock()
	var err error
	if h != nil {
		limited, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		err = h.call(limited, "stop", nil, nil)
	}
	if h == nil || err != nil { // it does not answer
		a.kill(s)
	}
	close(a.stop)
	a.cancel()
	err = a.ln.Close()
	a.work.Wait() // goroutines end with stop and cancel
	return err
}

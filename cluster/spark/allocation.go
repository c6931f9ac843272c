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
	"github.com/tfcluster/tfcluster/cluster/unixsock"
)

// allocation is the agents of one cluster on one Spark session.
type allocation struct {
	// fixed when it is made
	backend *Backend
	req     cluster.Request
	old     saved
	hostListener
	events  chan cluster.Event
	stop    chan struct{} // closed by Release
	working context.Context
	cancel  context.CancelFunc

	work sync.WaitGroup // the listener, launches; Release waits for it

	mu       sync.Mutex
	current                             // guarded by mu
	attempts map[cluster.ExecutorID]int // guarded by mu
	released bool                       // guarded by mu

	opening sync.Mutex // one session of our own is made at a time
}

// saved is what a later driver needs to know.
type saved struct {
	Session     state.Process              `json:"session"`
	Key         string                     `json:"key"` // by which that session is known
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
		return nil, fmt.Errorf("listen for the Spark session: %w", err)
	}
	a := &allocation{
		backend: b, req: req, old: old, hostListener: hostListener{socket: socket, ln: ln, said: make(chan hostEvent)},
		events: make(chan cluster.Event, 4*len(req.Executors)+16), stop: make(chan struct{}),
		current: current{changed: make(chan struct{})}, attempts: map[cluster.ExecutorID]int{},
	}
	a.working, a.cancel = context.WithCancel(context.Background())
	maps.Copy(a.attempts, old.Attempts)
	a.work.Go(a.serve)
	return a, nil
}

// patience is how long a session of our own waits for another driver.
func (a *allocation) patience() time.Duration {
	const grace = time.Minute
	if idle := a.req.Reserve.GetIdleMillis(); idle > 0 {
		return grace + time.Duration(idle)*time.Millisecond
	}
	return 400 * 24 * time.Hour // as long as certificates hold
}

// serve takes one host's connection after the other until Release.
func (a *allocation) serve() {
	for {
		conn, err := a.ln.Accept()
		if err != nil {
			return
		}
		if !a.attend(conn) {
			return
		}
	}
}

// attend hears one host to its end; it reports false at Release.
func (a *allocation) attend(conn net.Conn) bool {
	h := newHost(conn, a.said)
	defer conn.Close()
	for {
		select {
		case e := <-a.said:
			a.hear(h, e)
		case <-h.gone:
			a.left(h)
			return true
		case <-a.stop:
			conn.Close()
			for { // the reader may be about to tell
				select {
				case <-a.said:
				case <-h.gone:
					return false
				}
			}
		}
	}
}

func (a *allocation) hear(h *host, e hostEvent) {
	switch e.Event {
	case "hello":
		a.greet(h, e)
	case "pending":
		for _, id := range e.Executors {
			a.tell(cluster.Pending{Executor: cluster.ExecutorID(id), Why: e.Why})
		}
	case "ended":
		if borrowed(a.req.Reserve) {
			a.mu.Lock()
			a.over = e.Why
			close(a.changed)
			a.changed = make(chan struct{})
			a.mu.Unlock()
			a.tell(cluster.Terminated{Cause: e.Why})
			return
		}
		a.mu.Lock()
		a.host = nil
		a.mu.Unlock()
		a.lost(e.Why) // its process ends now; the next launch makes another session
	}
}

// greet takes a host for the cluster's. A session that a driver was making when it was
// killed, which nobody noted, is told to end.
func (a *allocation) greet(h *host, e hostEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !borrowed(a.req.Reserve) && e.Key != a.expected() {
		_ = h.send(map[string]any{"id": 0, "op": "stop"}) // best effort: it comes again
		h.conn.Close()
		return
	}
	a.host, a.hello = h, e
	close(a.changed)
	a.changed = make(chan struct{})
}

// expected is the key of the session of our own, or of the last driver's. Caller holds mu.
func (a *allocation) expected() string {
	if a.session != nil {
		return a.session.key
	}
	return a.old.Key
}

// left is a host's end. A session of our own is then over, and all that were on it.
func (a *allocation) left(h *host) {
	a.mu.Lock()
	over := a.host != h || a.released // or it has said so
	if a.host == h {
		a.host = nil
	}
	a.mu.Unlock()
	switch {
	case over:
	case borrowed(a.req.Reserve):
		a.tell(cluster.Terminated{Cause: "the notebook's SparkSession that it was on is over"})
	default:
		a.lost("the Spark session is over: " + a.gone())
	}
}

// all is every executor with its present attempt.
func (a *allocation) all() map[cluster.ExecutorID]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[cluster.ExecutorID]int{}
	for _, e := range a.req.Executors {
		all[e.ID] = a.attempts[e.ID]
	}
	return all
}

func (a *allocation) tell(e cluster.Event) {
	select {
	case a.events <- e:
	case <-a.stop:
	}
}

// lost tells that every executor is gone.
func (a *allocation) lost(why string) {
	all := a.all()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		a.tell(cluster.Lost{Executor: id, Attempt: all[id], Cause: why})
	}
}

// started is what a task of Spark's said of the agent it was to start.
type started struct {
	Executor string `json:"executor"`
	Attempt  int    `json:"attempt"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Error    string `json:"error"`
}

// launch has agents started, one attempt of each executor's, and tells what became of
// them. Those that were replaced again meanwhile are left out. A session of our own is
// made anew first where the last one is over, which takes as long as Spark lets it.
func (a *allocation) launch(wanted map[cluster.ExecutorID]int) {
	a.work.Go(func() {
		var agents []started
		ctx, cancel := context.WithTimeout(a.working, a.wait())
		err := a.again(ctx)
		cancel()
		if err == nil {
			agents, err = a.ask(wanted)
		}
		if err != nil {
			for _, id := range slices.Sorted(maps.Keys(wanted)) {
				a.tell(cluster.Lost{Executor: id, Attempt: wanted[id], Cause: err.Error()})
			}
			return
		}
		for _, s := range agents {
			id := cluster.ExecutorID(s.Executor)
			switch {
			case s.Error != "":
				a.tell(cluster.Lost{Executor: id, Attempt: s.Attempt, Cause: s.Error})
			case a.holds(): // the stage is over, and the agent with it
				a.tell(cluster.Lost{Executor: id, Attempt: s.Attempt, Cause: "its agent ended"})
			default:
				a.tell(cluster.Granted{Executor: id, Attempt: s.Attempt, Host: s.Host, PID: s.PID})
			}
		}
	})
}

// holds is whether the stage that starts agents stays until they end.
func (a *allocation) holds() bool { return sizeOf(a.req.Executors).gpus > 0 }

// wait is how long Spark may take to have a session, or slots for agents.
func (a *allocation) wait() time.Duration {
	return time.Duration(a.req.Reserve.GetTimeoutMillis())*time.Millisecond + time.Minute
}

// ask is launch's call of the host.
func (a *allocation) ask(wanted map[cluster.ExecutorID]int) ([]started, error) {
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
			return nil, fmt.Errorf("configure executor %s: %w", id, err)
		}
		encoded, err := config.Encode()
		if err != nil {
			return nil, fmt.Errorf("configure executor %s: %w", id, err)
		}
		coordinator = config.GetDriver().GetCoordinator()
		agents = append(agents, agent{id, wanted[id], encoded})
	}
	wait := a.wait()
	ctx, cancel := context.WithTimeout(a.working, wait+startTimeout) // the host says first what Spark lacks
	hold := a.holds()
	if hold { // the answer comes when the agents have ended
		cancel()
		ctx, cancel = context.WithCancel(a.working)
	}
	defer cancel()
	var said []started
	err := h.call(ctx, "launch", map[string]any{
		"agents": agents, "program": a.req.Program, "coordinator": coordinator, "name": a.req.Cluster, "identity": a.req.Identity, "python": a.req.Reserve.GetPython(),
		"hold": hold, "seconds": wait.Seconds(),
	}, &said)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no agent was started within %v: Spark does not run the stage, see the Spark UI", wait+startTimeout)
	}
	return said, err
}

// ID is Spark's application, and the session where that has none of its own.
func (a *allocation) ID() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hello.Application
}

// Events tells what Spark does.
func (a *allocation) Events() <-chan cluster.Event { return a.events }

// Replace asks Spark for a slot for another agent. The old one, where it lives, is
// refused by the coordinator and ends by itself.
func (a *allocation) Replace(_ context.Context, id cluster.ExecutorID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.released {
		return errors.New("the allocation is released")
	}
	a.attempts[id]++
	a.launch(map[cluster.ExecutorID]int{id: a.attempts[id]}) // while Release cannot wait yet
	return nil
}

// again makes a session of our own anew where the last one is over.
func (a *allocation) again(ctx context.Context) error {
	a.opening.Lock()
	defer a.opening.Unlock()
	a.mu.Lock()
	here := a.host != nil
	a.mu.Unlock()
	switch {
	case here:
		return nil
	case borrowed(a.req.Reserve):
		return errors.New("the notebook's SparkSession is over, and the cluster with it: make the session again and reserve")
	case ctx.Err() != nil: // while others tried
		return fmt.Errorf("the Spark session was not made: %w", ctx.Err())
	}
	if err := reachMaster(ctx, a.req.Reserve); err != nil {
		return err
	}
	return a.open(ctx)
}

// Logs cannot bring an agent's log from an executor that it did not join from.
func (a *allocation) Logs(context.Context, cluster.ExecutorID) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("the agent's log is on its executor, below tfcluster-UID in its temporary folder; Spark's own log of the task is in the Spark UI\n")), nil
}

// Saved names the session's process and the attempts.
func (a *allocation) Saved() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := saved{Application: a.hello.Application, Attempts: a.attempts}
	if a.session != nil {
		s.Session, s.Key = a.session.process, a.session.key
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // plain data
	}
	return b
}

// Release tells the host that the cluster is over. A session of our own ends by
// itself from then on; the notebook's goes on without us.
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
	if h == nil || err != nil { // it does not hear
		a.kill(s)
	}
	close(a.stop)
	a.cancel()
	err = a.ln.Close()
	a.work.Wait() // what is under way ends with stop and cancel
	return err
}

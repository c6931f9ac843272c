// Package coordinator runs one cluster inside its driver. It gives events of agents, clients
// and the engine to the lifecycle and takes the actions that the lifecycle returns. It
// serves the agents (Coordinator service) and the clients (Control service).
package coordinator

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/logstore"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// Config is what a Coordinator is made of.
type Config struct {
	Name    string
	Version string
	Request *clusterpb.ReserveRequest
	// Address is where agents dial, HOST:PORT as advertised. Before is where an earlier
	// driver's did; "" for a new cluster.
	Address, Before string
	Authority       *auth.Authority
	// StateDir is the cluster's own folder on this host; Dir holds its runs.
	StateDir, Dir string
	// Spool keeps the runs where Dir is a URI; nil where Dir is a folder of this host.
	Spool Spool
	// Hadoop is what agents are told of HDFS; nil: nothing.
	Hadoop *clusterpb.HadoopClient
	// Here is whether the executors are on the notebook's machine, and see its folders.
	Here bool
	// DefaultFS is what a program's absolute paths are relative to; file:// if empty.
	DefaultFS string
	Backend   cluster.Backend
	// Saved is what an earlier driver's allocation saved; nil for a new one.
	Saved []byte
	// LastRun is the number of the last run an earlier driver began, Earlier of the last
	// that the directory held before this cluster.
	LastRun, Earlier int32
	// Begin is the run that the cluster was made for, where no client is to begin it.
	Begin   *clusterpb.StartRequest
	Program string // the binary that agents run
	// Given has the contents of --files and --venv where this host is not the one on which
	// they were given; nil: they are read here. Environment is what Given has of --venv.
	Given       ship.Source
	Environment *clusterpb.Environment
	// OrphanGrace is how long tasks outlive their driver.
	OrphanGrace time.Duration
	Heartbeat   time.Duration // between two of an agent's
	Silence     time.Duration // until a silent agent is lost
	Quota       logstore.Quota
	TensorBoard TensorBoards
	// SaveState is called when what a later driver must know has changed.
	SaveState func(allocation string, saved []byte, lastRun int32, detached bool) error
	// SaveEvery is the least between two calls for what the engine has told: what it grants
	// comes in as many events. Runs are saved as they begin.
	SaveEvery time.Duration
	// Kept waits until what SaveState was given is where a later driver finds it; nil: it is
	// when SaveState returns.
	Kept func(context.Context) error
	// Record is called when what a Past holds has changed, and once at the end, when the
	// cluster is over; nil: nobody keeps one here.
	Record func(leases []cluster.Application, places []byte, lastRun int32, over bool) error
	Log    *slog.Logger
}

// TensorBoards serves a cluster's TensorBoard. The driver injects it.
type TensorBoards interface {
	Open(ctx context.Context, logdir string) (*clusterpb.TensorBoardReply, error)
	Close(ctx context.Context) error
}

// Coordinator runs one cluster: it holds the lifecycle, talks to agents and serves
// clients. New makes it, Run owns its goroutines.
type Coordinator struct {
	clusterpb.UnimplementedCoordinatorServer

	cfg   Config
	log   *slog.Logger
	store *logstore.Store
	files *runfiles.Keeper
	depot *ship.Depot
	calls chan func() // run by the loop, in order
	done  chan struct{}
	since time.Time

	address    atomic.Pointer[string] // where agents dial
	movedFrom  string                 // of whoever calls Moved: the address before
	moving     sync.Mutex             // held while agents are told of the address, for movedLimit at most
	generation atomic.Int32           // of the executors' Pythons: how often reset --hard was asked for

	// Owned by the loop.
	lc        *lifecycle.Machine
	alloc     cluster.Allocation
	agents    map[cluster.ExecutorID]*agentConn
	timers    map[string]*time.Timer
	records   []*record // of runs, oldest first
	program   *clusterpb.StartRequest
	blobs     map[string][]byte
	given     []*clusterpb.Shipped     // files of the last start
	launches  *launches                // of the last attempt
	reserve   *clusterpb.ReserveUpdate // the end of the reservation, nil before
	notes     notes
	planning  bool // a start's folders are being made
	detached  bool
	holds     int
	idleSince time.Time
	saveNext  time.Time // saveSoon does not before
	releasing bool
	lastRun   int32
	parting   string // what a shutdown tells at its end
	unbegun   string // why the run that the cluster was made for could not be begun
	hellos    map[cluster.ExecutorID]*clusterpb.Hello
	pythons   pythons // that they tell of
	granted   map[cluster.ExecutorID]cluster.Granted
	barriers  map[string]*barrier
	owed      map[cluster.ExecutorID]owing // files of the last task, to be sent by executors with disks of their own

	// working is cancelled at the cluster's end; what the loop sets going keeps to it.
	working context.Context

	mu        sync.Mutex // guards followers and watchers
	followers map[*follower]struct{}
	watchers  map[chan struct{}]struct{} // woken when something to show has changed
	released  chan error                 // the release's end, cap 1
	allocated chan struct{}              // closed once alloc is set
	work      sync.WaitGroup             // what the loop set going; Run waits for it
	looks     chan chan<- struct{}       // asks WatchEvents to read now, and to close it then
	watching  atomic.Bool                // WatchEvents answers them
}

// New prepares a cluster; nothing runs before Run.
func New(cfg Config) *Coordinator {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Quota == (logstore.Quota{}) {
		cfg.Quota = logstore.DefaultQuota()
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = time.Second
	}
	if cfg.Silence == 0 {
		cfg.Silence = 10 * time.Second
	}
	if cfg.OrphanGrace == 0 {
		cfg.OrphanGrace = 60 * time.Second
	}
	if cfg.SaveState == nil {
		cfg.SaveState = func(string, []byte, int32, bool) error { return nil }
	}
	c := &Coordinator{
		owed: map[cluster.ExecutorID]owing{},
		cfg:  cfg, log: cfg.Log, calls: make(chan func(), 256), done: make(chan struct{}), since: time.Now(),
		agents: map[cluster.ExecutorID]*agentConn{}, timers: map[string]*time.Timer{}, blobs: map[string][]byte{}, hellos: map[cluster.ExecutorID]*clusterpb.Hello{},
		granted: map[cluster.ExecutorID]cluster.Granted{}, barriers: map[string]*barrier{}, followers: map[*follower]struct{}{}, watchers: map[chan struct{}]struct{}{}, looks: make(chan chan<- struct{}),
		released: make(chan error, 1), allocated: make(chan struct{}), lastRun: cfg.LastRun,
	}
	c.store = logstore.NewStore(cfg.folder(), cfg.Quota, func(text string) { c.post(func() { c.note(text, true); c.wake() }) })
	c.address.Store(&cfg.Address)
	c.files = c.keeper()
	c.depot = NewDepot(cfg.StateDir)
	c.files.Allow(cfg.LastRun)
	if cfg.Spool != nil {
		cfg.Spool.Tell(func(text string) { c.post(func() { c.note(text, true); c.wake() }) })
	}
	return c
}

// Run allocates the executors and serves the cluster until it is released or ctx
// ends, in which case it releases as well. It returns nil for a cluster that was
// released in order.
func (c *Coordinator) Run(ctx context.Context) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer c.depot.Close()
	defer c.work.Wait()
	defer stop()
	defer close(c.done)
	c.working = working
	execs := cluster.ExecutorRequests(c.cfg.Request.GetRoles())
	c.lc = lifecycle.New(execs, c.cfg.Request.GetRoles(), c.limits(), c.cfg.Saved != nil)
	for run := int32(1); run <= c.lastRun; run++ {
		if err := c.store.Load(run); err != nil {
			c.log.Warn("load lines", "run", run, "err", err)
		}
		c.loadRecord(run)
	}
	if c.cfg.Begin != nil {
		c.work.Go(func() { c.runItself(working, c.cfg.Begin) })
	}
	defer c.stopTimers()
	c.perform(c.lc.Open())
	c.handle(lifecycle.ClientsChanged{Count: 0})
	if over, err := c.allocate(ctx, execs); over || err != nil {
		return errors.Join(err, c.store.Close())
	}
	return errors.Join(c.loop(ctx, c.alloc.Events()), c.store.Close())
}

func (c *Coordinator) limits() lifecycle.Limits {
	lim := lifecycle.DefaultLimits()
	lim.Heartbeat = c.cfg.Silence
	if ms := c.cfg.Request.GetTimeoutMillis(); ms > 0 {
		lim.Reserve = time.Duration(ms) * time.Millisecond
	}
	lim.Idle = time.Duration(c.cfg.Request.GetIdleMillis()) * time.Millisecond
	if r, ok := c.cfg.Backend.(cluster.RemoteEngine); ok {
		lim.Sudden = cmp.Or(r.FailureDetectionDelay(), lim.Sudden)
	}
	return lim
}

// serveFor keeps answering clients for a while, or until one of them releases.
func (c *Coordinator) serveFor(ctx context.Context, d time.Duration) {
	end := time.After(d)
	for {
		select {
		case f := <-c.calls:
			f()
		case err := <-c.released:
			if err != nil {
				c.log.Warn("release", "err", err)
			}
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c *Coordinator) loop(ctx context.Context, events <-chan cluster.Event) error {
	stop := ctx.Done()
	for {
		select {
		case f := <-c.calls:
			f()
		case e := <-events:
			c.engineEvent(e)
		case <-stop:
			stop = nil
			c.handle(lifecycle.ShutdownRequested{Reason: "the driver was asked to end"})
		case err := <-c.released:
			// Clients that watch the shutdown learn of its end.
			c.handle(lifecycle.Released{})
			c.log.Info("released", "err", err)
			c.wake()
			c.serveFor(context.WithoutCancel(ctx), 100*time.Millisecond)
			return err
		}
	}
}

// call runs f in the loop and waits for it; ErrOver when the cluster is over. Once f
// is in the queue it is waited for whatever becomes of ctx: a caller that gave up
// could not undo what f did.
func (c *Coordinator) call(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	select {
	case c.calls <- func() { f(); close(ran) }:
	case <-c.done:
		return ErrOver
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-ran:
		return nil
	case <-c.done:
		return ErrOver
	}
}

// post runs f in the loop without waiting.
func (c *Coordinator) post(f func()) {
	select {
	case c.calls <- f:
	case <-c.done:
	}
}

// ErrOver says that the cluster has been released.
var ErrOver = errors.New("the cluster is over")

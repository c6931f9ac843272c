// Package coordinator runs one cluster inside its driver: it passes events of agents, clients
// and the engine to the lifecycle and performs the actions that it returns. It implements the
// services for agents (Coordinator) and clients (Control).
package coordinator

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/feed/dispatch"
	"github.com/tfcluster/tfcluster/cluster/driver/groups"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
)

// Coordinator runs one cluster. New returns it; Run owns its goroutines.
type Coordinator struct {
	clusterpb.UnimplementedCoordinatorServer
	eventLoop

	// Safe from any goroutine.
	cfg     Config // not changed after New
	log     *slog.Logger
	since   time.Time
	store   *logstore.Store
	files   files
	address address
	subs    subscribers

	// Owned by the loop.
	lc       *lifecycle.Machine
	reserved reservation
	execs    executors
	runs     runs
	clients  clients
	notes    notes
}

// New returns a Coordinator; it does nothing before Run.
func New(cfg Config) *Coordinator {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Quota = cmp.Or(cfg.Quota, logstore.DefaultQuota())
	cfg.Timing.Heartbeat = cmp.Or(cfg.Timing.Heartbeat, time.Second)
	if ms := cfg.Request.GetHeartbeatTimeoutMillis(); ms > 0 {
		cfg.Timing.Silence = time.Duration(ms) * time.Millisecond
	}
	cfg.Timing.Silence = cmp.Or(cfg.Timing.Silence, cluster.HeartbeatTimeout)
	cfg.OrphanGrace = cmp.Or(cfg.OrphanGrace, orphanGrace(cfg.Timing.Silence))
	if cfg.Hooks.SaveState == nil {
		cfg.Hooks.SaveState = func(string, []byte, int32, bool) error { return nil }
	}
	c := &Coordinator{
		eventLoop: eventLoop{calls: make(chan func(), 256), done: make(chan struct{}), timers: map[string]*time.Timer{}},
		subs: subscribers{
			followers: map[*follower]struct{}{}, watchers: map[chan struct{}]struct{}{}, panels: map[*panelStream]struct{}{},
		},
		reserved: reservation{
			allocated: make(chan struct{}), failureRead: make(chan struct{}), released: make(chan error, 1),
		},
		cfg: cfg, log: cfg.Log, since: time.Now(), execs: newExecutors(cfg.Request.GetRoles(), cfg.Timing.Heartbeat),
		runs: newRuns(&cfg),
	}
	c.store = logstore.NewStore(cfg.folder(), cfg.Quota, func(text string) {
		c.post(func() { c.note(withLimit(text), true); c.subs.wake() })
	})
	c.address.now.Store(&cfg.Address)
	c.runs.feeds = dispatch.New(feedable{c}, c.callerOf, cfg.Log)
	c.runs.groups = groups.New(feedable{c}, c.callerOf)
	c.files = files{
		Directory: cfg.Directory, Artifacts: cfg.Artifacts, receiver: c.receiver(), shipped: NewArtifactStore(cfg.StateDir),
		events: eventLooks{asked: make(chan chan<- struct{})}, ranks: ranksOf(cfg.Request.GetRoles()),
	}
	c.files.receiver.Allow(cfg.LastRun)
	if cfg.Spool != nil {
		cfg.Spool.OnNotice(func(text string) { c.post(func() { c.note(text, true); c.subs.wake() }) })
	}
	return c
}

// Run allocates the executors and serves the cluster until it is released. When ctx ends it
// releases the cluster as well. It returns nil after an orderly release.
func (c *Coordinator) Run(ctx context.Context) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer c.files.shipped.Close()
	defer c.work.Wait()
	defer stop()
	defer close(c.done)
	c.working = working
	execs := cluster.ExecutorRequests(c.cfg.Request.GetRoles())
	c.lc = lifecycle.New(execs, c.cfg.Request.GetRoles(), c.limits(), c.cfg.Recovered.Saved != nil)
	for run := int32(1); run <= c.runs.lastRun; run++ {
		if err := c.store.Load(run); err != nil {
			c.log.Warn("logs shows no lines of an earlier run, which could not be read; other runs are not affected",
				"run", run, "err", err)
		}
		c.loadRecord(run)
	}
	if start := c.runs.autoStart; c.cfg.Begin != nil || start != nil && c.runs.autoStarted() == nil {
		c.work.Go(func() { c.autoStart(working, start) })
	}
	defer c.stopTimers()
	c.perform(c.lc.Open())
	c.handle(lifecycle.ClientsChanged{Count: 0})
	if over, err := c.allocate(ctx, execs); over || err != nil {
		return errors.Join(err, c.store.Close())
	}
	return errors.Join(c.loop(ctx, c.reserved.alloc.Events()), c.store.Close())
}

func (c *Coordinator) limits() lifecycle.Limits {
	lim := lifecycle.DefaultLimits()
	lim.Heartbeat = c.cfg.Timing.Silence
	if ms := c.cfg.Request.GetTimeoutMillis(); ms > 0 {
		lim.Reserve = time.Duration(ms) * time.Millisecond
	}
	lim.Idle = time.Duration(c.cfg.Request.GetIdleMillis()) * time.Millisecond
	if r, ok := c.cfg.Backend.(cluster.RemoteEngine); ok {
		lim.Sudden = cmp.Or(r.FailureDetectionDelay(), lim.Sudden)
	}
	return lim
}

// serveFor runs the loop's calls for d at most, until the cluster is released or gone, which
// may be nil, is closed.
func (c *Coordinator) serveFor(ctx context.Context, d time.Duration, gone <-chan struct{}) {
	end := time.After(d)
	for {
		select {
		case f := <-c.calls:
			f()
		case err := <-c.reserved.released:
			if err != nil {
				c.log.Warn("the executors may not have been released; the engine ends them after a time", "err", err)
			}
			return
		case <-gone:
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
	heartbeat := time.NewTicker(c.cfg.Timing.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case f := <-c.calls:
			f()
		case <-heartbeat.C:
			c.watchSilence(time.Now())
		case e := <-events:
			c.engineEvent(e)
		case <-stop:
			stop = nil
			c.handle(c.askedToEnd(ctx))
		case err := <-c.reserved.released:
			// Lets clients read the end.
			c.handle(lifecycle.Released{})
			c.log.Info("released", "err", err)
			c.subs.wake()
			if ctx := context.WithoutCancel(ctx); c.reserved.answer.GetFailure() != nil && !c.reserved.failureShown {
				c.serveFor(ctx, reasonWait, c.reserved.failureRead)
			}
			c.serveFor(context.WithoutCancel(ctx), 100*time.Millisecond, c.subs.drained())
			return err
		}
	}
}

// endReasonLimit bounds the question to the engine why it ends the driver. YARN kills it 250 ms after the signal, and
// the run's record is still to be written.
const endReasonLimit = 100 * time.Millisecond

// askedToEnd returns what a signal to the driver means: a request to release the cluster, or the engine's end of it.
func (c *Coordinator) askedToEnd(ctx context.Context) lifecycle.Event {
	if c.cfg.Hooks.EndReason == nil {
		return lifecycle.ShutdownRequested{Reason: "the driver was asked to end"}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endReasonLimit)
	defer cancel()
	return cluster.Terminated{Cause: c.cfg.Hooks.EndReason(ctx)}
}

// ErrOver is the error of calls after the cluster has been released.
var ErrOver = errors.New("the cluster is over: reserve another one")

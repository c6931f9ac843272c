package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Config is what a Coordinator is made of.
type Config struct {
	Name    string
	Version string
	Request *clusterpb.ReserveRequest
	// Address is where agents dial, HOST:PORT as advertised.
	Address   string
	Authority *Authority
	// StateDir is the cluster's own folder on this host; Dir holds its runs.
	StateDir, Dir string
	Backend       Backend
	// Saved is what an earlier driver's allocation saved; nil for a new one.
	Saved []byte
	// LastRun is the number of the last run an earlier driver began.
	LastRun int32
	Program string // the binary that agents run
	// OrphanGrace is how long tasks outlive their driver.
	OrphanGrace time.Duration
	Heartbeat   time.Duration // between two of an agent's
	Silence     time.Duration // until a silent agent is lost
	Quota       Quota
	TensorBoard TensorBoards
	// SaveState is called when what a later driver must know has changed.
	SaveState func(allocation string, saved []byte, lastRun int32, detached bool) error
	Log       *slog.Logger
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
	store *Store
	calls chan func() // run by the loop, in order
	done  chan struct{}
	since time.Time

	// Owned by the loop.
	lc        *lifecycle
	alloc     Allocation
	agents    map[ExecutorID]*agentConn
	timers    map[string]*time.Timer
	records   []*record // of runs, oldest first
	program   *clusterpb.StartRequest
	blobs     map[string][]byte
	reserve   *clusterpb.ReserveUpdate // the end of the reservation, nil before
	notes     []*clusterpb.Note
	detached  bool
	holds     int
	idleSince time.Time
	releasing bool
	lastRun   int32
	hellos    map[ExecutorID]*clusterpb.Hello
	granted   map[ExecutorID]Granted
	barriers  map[string]map[string]bool

	mu        sync.Mutex // guards followers and watchers
	followers map[*follower]struct{}
	watchers  map[chan struct{}]struct{} // woken when something to show has changed
	released  chan error                 // the release's end, cap 1
}

// NewCoordinator prepares a cluster; nothing runs before Run.
func NewCoordinator(cfg Config) *Coordinator {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Quota == (Quota{}) {
		cfg.Quota = DefaultQuota()
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
	return &Coordinator{
		cfg: cfg, log: cfg.Log, store: NewStore(cfg.Dir, cfg.Quota), calls: make(chan func(), 256), done: make(chan struct{}), since: time.Now(),
		agents: map[ExecutorID]*agentConn{}, timers: map[string]*time.Timer{}, blobs: map[string][]byte{}, hellos: map[ExecutorID]*clusterpb.Hello{},
		granted: map[ExecutorID]Granted{}, barriers: map[string]map[string]bool{}, followers: map[*follower]struct{}{}, watchers: map[chan struct{}]struct{}{},
		released: make(chan error, 1), lastRun: cfg.LastRun,
	}
}

// Run allocates the executors and serves the cluster until it is released or ctx
// ends, in which case it releases as well. It returns nil for a cluster that was
// released in order.
func (c *Coordinator) Run(ctx context.Context) error {
	defer close(c.done)
	roles := c.cfg.Request.GetRoles()
	var execs []ExecutorRequest
	for i, t := range Tasks(roles) {
		execs = append(execs, ExecutorRequest{ID: ExecutorID(fmt.Sprint(i)), Task: t, Each: resourcesOf(roles, t.Role)})
	}
	lim := defaultLimits()
	lim.heartbeat = c.cfg.Silence
	if ms := c.cfg.Request.GetTimeoutMillis(); ms > 0 {
		lim.reserve = time.Duration(ms) * time.Millisecond
	}
	lim.idle = time.Duration(c.cfg.Request.GetIdleMillis()) * time.Millisecond
	c.lc = newLifecycle(execs, lim)
	for run := int32(1); run <= c.lastRun; run++ {
		if err := c.store.Load(run); err != nil {
			c.log.Warn("load lines", "run", run, "err", err)
		}
		c.loadRecord(run)
	}
	req := Request{
		Cluster: c.cfg.Name, Executors: execs, Reserve: c.cfg.Request, AgentConfig: c.agentConfig(execs), Program: c.cfg.Program, StateDir: c.cfg.StateDir,
	}
	alloc, err := c.allocate(ctx, req)
	if err != nil {
		c.reserve = &clusterpb.ReserveUpdate{Failure: &clusterpb.Failure{Kind: "engine", Summary: err.Error(), ExitCode: 69}}
		c.lc.state = stateFailed
		// Whoever asked is told before the cluster is gone.
		c.serveFor(ctx, 2*time.Second)
		return fmt.Errorf("allocate: %w", err)
	}
	c.alloc = alloc
	c.saveState()
	c.perform(c.lc.open())
	c.handle(evClients{0})
	err = c.loop(ctx, alloc.Events())
	for _, t := range c.timers {
		t.Stop()
	}
	return errors.Join(err, c.store.Close())
}

func (c *Coordinator) allocate(ctx context.Context, req Request) (Allocation, error) {
	if c.cfg.Saved != nil {
		return c.cfg.Backend.Recover(ctx, req, c.cfg.Saved)
	}
	return c.cfg.Backend.Allocate(ctx, req)
}

func resourcesOf(roles []*clusterpb.Role, name string) *clusterpb.Resources {
	for _, r := range roles {
		if r.GetName() == name {
			return r.GetEach()
		}
	}
	return nil
}

// serveFor keeps answering clients for a while, or until one of them releases.
func (c *Coordinator) serveFor(ctx context.Context, d time.Duration) {
	end := time.After(d)
	for {
		select {
		case f := <-c.calls:
			f()
		case <-c.released:
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c *Coordinator) loop(ctx context.Context, events <-chan Event) error {
	stop := ctx.Done()
	for {
		select {
		case f := <-c.calls:
			f()
		case e := <-events:
			c.engineEvent(e)
		case <-stop:
			stop = nil
			c.handle(evShutdown{"the driver was asked to end"})
		case err := <-c.released:
			// Clients that watch the shutdown learn of its end.
			c.lc.state = stateReleasing
			c.log.Info("released", "err", err)
			c.wake()
			c.serveFor(context.WithoutCancel(ctx), 100*time.Millisecond)
			return err
		}
	}
}

func (c *Coordinator) engineEvent(e Event) {
	switch e := e.(type) {
	case Pending:
		c.handle(evPending{e.Executor, e.Why})
	case Granted:
		c.granted[e.Executor] = e
		c.handle(evGranted{e.Executor, e.Attempt, e.Host})
	case Lost:
		c.handle(evLost{e.Executor, e.Attempt, e.Cause})
	}
}

// call runs f in the loop and waits for it; false when the cluster is over.
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
	case <-ctx.Done():
		return ctx.Err()
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

// handle steps the lifecycle and does what it says. Loop only.
func (c *Coordinator) handle(e event) { c.perform(c.lc.step(e)) }

func (c *Coordinator) perform(actions []action) {
	for _, a := range actions {
		switch a := a.(type) {
		case actReplace:
			c.replace(a.exec)
		case actSend:
			if conn := c.agents[a.exec]; conn != nil {
				conn.send(a.what)
			}
		case actTimer:
			c.timer(a.name, a.after)
		case actReady:
			c.reserve = &clusterpb.ReserveUpdate{Ready: true}
			c.saveState()
		case actReserveFailed:
			c.reserve = &clusterpb.ReserveUpdate{Failure: a.failure}
		case actNote:
			c.note(a.text, a.warning)
		case actRelease:
			c.release(a.reason)
		case actLaunch:
			c.launch(a)
		case actRunEntered:
			c.find(c.lc.run.spec.id).entered = true
		case actRunOver:
			c.runOver(nil)
		case actStartFailed:
			c.runOver(a.failure)
		case actRunGone:
			c.find(c.lc.run.spec.id).gone = true
		}
	}
	c.wake()
}

func (c *Coordinator) timer(name string, after time.Duration) {
	if t := c.timers[name]; t != nil {
		t.Stop()
		delete(c.timers, name)
	}
	if name == "idle" {
		c.idleSince = time.Time{}
		if after > 0 {
			c.idleSince = time.Now()
		}
	}
	if after <= 0 {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(after, func() {
		c.post(func() {
			if c.timers[name] == t { // not replaced while it fired
				delete(c.timers, name)
				c.handle(evTimer{name})
			}
		})
	})
	c.timers[name] = t
}

func (c *Coordinator) note(text string, warning bool) {
	c.log.Info("note", "text", text)
	n := &clusterpb.Note{Text: text, Warning: warning}
	c.notes = append(c.notes, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range c.followers {
		f.note(n)
	}
}

// replace asks the engine for another executor; a failure is a loss.
func (c *Coordinator) replace(id ExecutorID) {
	attempt := c.lc.exec(id).attempt
	if conn := c.agents[id]; conn != nil {
		conn.close("its executor is replaced")
		delete(c.agents, id)
	}
	go func() { // ends by its deadline; post waits for nobody once the loop is over
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.alloc.Replace(ctx, id); err != nil {
			c.post(func() { c.handle(evLost{id, attempt, err.Error()}) })
		}
	}()
}

func (c *Coordinator) release(reason string) {
	if c.releasing {
		return
	}
	c.releasing = true
	c.log.Info("release", "reason", reason)
	if c.alloc == nil { // nothing was granted
		c.released <- nil
		return
	}
	failed := c.lc.state == stateFailed
	go func() { // its end is awaited by the loop
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if failed {
			time.Sleep(200 * time.Millisecond) // whoever waits for the reservation reads why it failed
		}
		var err error
		if c.cfg.TensorBoard != nil {
			err = c.cfg.TensorBoard.Close(ctx)
		}
		c.released <- errors.Join(err, c.alloc.Release(ctx))
	}()
}

func (c *Coordinator) saveState() {
	if err := c.cfg.SaveState(c.alloc.ID(), c.alloc.Saved(), c.lastRun, c.detached); err != nil {
		c.note("the cluster's state could not be saved, a driver that dies now cannot be replaced: "+err.Error(), true)
	}
}

// launch composes a task's launch and sends it.
func (c *Coordinator) launch(a actLaunch) {
	rec, start := c.current(), c.program
	conn := c.agents[a.exec]
	if conn == nil {
		return // its loss is on its way
	}
	env := map[string]string{}
	for _, from := range []map[string]string{c.cfg.Request.GetEnv(), start.GetEnv()} {
		for k, v := range from {
			env[k] = v
		}
	}
	env["TF_CONFIG"] = a.spec.TFConfig(a.task)
	x := c.lc.exec(a.exec)
	var number int32
	for i, t := range c.lc.sortedTasks() {
		if t == x.task {
			number = int32(i)
		}
	}
	rec.started(a.task, x)
	c.store.Begin(rec.status.GetId(), a.task.String())
	conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Launch{Launch: &clusterpb.Launch{
		Run: rec.status.GetId(), Attempt: int32(a.attempt), Task: a.task.String(), Program: withoutData(start.GetProgram()), Env: env,
		Directories: &clusterpb.Directories{
			Dir: rec.status.GetDir(), Logs: rec.status.GetLogDir(), Checkpoints: rec.status.GetCheckpointDir(), Export: rec.status.GetExportDir(),
			Working: start.GetWorkingDir(),
		},
		Mode: start.GetMode(), Epochs: start.GetEpochs(), NumWorkers: int32(len(a.spec[Worker]) + len(a.spec[Chief])), ClusterSpec: a.spec.JSON(),
		Callback: start.GetCallback(), KerasPatch: start.GetKerasPatch(), DefaultFs: "file://", Resumed: start.GetResume() != "" || a.attempt > 1,
		ExecutorNumber: number,
	}}})
}

// withoutData is a program whose blobs are named by digest alone.
func withoutData(p *clusterpb.Program) *clusterpb.Program {
	q := proto.CloneOf(p)
	for _, b := range []*clusterpb.Blob{q.GetBody(), q.GetArgs(), q.GetModules()} {
		if b != nil {
			b.Data = nil
		}
	}
	return q
}

// runOver records a run's end where history and a later driver find it; neverBegun is
// why its start did not come about.
func (c *Coordinator) runOver(neverBegun *clusterpb.Failure) {
	rec := c.current()
	if rec == nil {
		return
	}
	rec.status.EndedUnix = time.Now().Unix()
	rec.over = time.Now()
	if c.lc.run == nil || c.lc.run.spec.id != rec.status.GetId() { // stopped before it could begin
		rec.status.State = "stopped"
		rec.status.Failure = &clusterpb.Failure{Kind: "canceled", Summary: "stopped before it began"}
		if neverBegun != nil {
			rec.status.State, rec.status.Failure = "failed", neverBegun
		}
	}
	c.lastStatus(rec)
	b, err := protojson.MarshalOptions{Multiline: true}.Marshal(rec.status)
	if err == nil {
		err = WriteFile(filepath.Join(rec.status.GetDir(), "run.json"), b)
	}
	if err != nil {
		c.note("the run's record could not be written: "+err.Error(), true)
	}
	if f := rec.status.GetFailure(); f != nil && rec.status.GetState() == "failed" {
		c.log.Info("run failed", "run", rec.status.GetId(), "cause", f.GetSummary())
	}
}

func (c *Coordinator) loadRecord(run int32) {
	dir := RunDir(c.cfg.Dir, run)
	st := &clusterpb.RunStatus{}
	b, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err == nil {
		err = protojson.Unmarshal(b, st)
	}
	if err != nil {
		st = &clusterpb.RunStatus{
			Id: run, State: "failed", Dir: dir, LogDir: filepath.Join(dir, "logs"), CheckpointDir: filepath.Join(dir, "checkpoints"), ExportDir: filepath.Join(dir, "export"),
			Failure: &clusterpb.Failure{
				Kind: "lost", ExitCode: 1, Summary: "the cluster's driver died during the run; its tasks were ended",
				Remedy: "%tfcluster start --resume goes on from the last checkpoint",
			},
		}
	}
	c.records = append(c.records, &record{status: st, gone: true, over: c.since, loaded: true})
}

// current is the record of the active or last run.
func (c *Coordinator) current() *record {
	if len(c.records) == 0 {
		return nil
	}
	return c.records[len(c.records)-1]
}

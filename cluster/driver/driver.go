package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/coordinator"
	"github.com/tfcluster/tfcluster/cluster/driver/lines"
	"github.com/tfcluster/tfcluster/cluster/driver/serving"
	"github.com/tfcluster/tfcluster/cluster/runfiles/spool"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/handshake"
)

// Options configures a driver. Main sets it; it is not changed afterwards.
type Options struct {
	Version string
	Program string // the binary that agents run
	// Engines are all supported engines; a driver uses the one of its request.
	Engines cluster.Engines
	// TensorBoard returns the cluster's TensorBoard; may be nil. python is an interpreter
	// with the package tensorboard; lines is what its proxy serves as /lines and below; nil: nothing.
	TensorBoard func(python, stateDir, socketDir, name string, lines http.Handler) coordinator.TensorBoards
	// ShowBoard serves an open TensorBoard below a path of a hosted driver's page; may be nil.
	ShowBoard func(path string, at *clusterpb.TensorBoardReply) http.Handler
	// OpenRemote opens a --dir that is a URI; nil: not supported.
	OpenRemote func(dir string) (RemoteDir, error)
	// Hadoop returns this host's Hadoop configuration for a cluster's directory; nil: none.
	Hadoop func(dir string) (Hadoop, error)
	// Events reads and writes event files below a run's log folder; Read may be nil.
	Events coordinator.EventFiles
}

// Main reads a state.DriverInput from stdin, writes its socket or an error to ready as one
// line of JSON, and serves until the cluster is released, or ctx ends.
func Main(ctx context.Context, opt Options, stdin io.Reader, ready io.WriteCloser) error {
	// Before anything is created: a driver that is ended while it starts cleans up too.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGHUP)
	d := &driver{opt: opt, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), since: time.Now()}
	var in state.DriverInput
	err := json.NewDecoder(stdin).Decode(&in)
	if err != nil {
		err = fmt.Errorf("the notebook or shell that started the driver ended before it had sent the request (%w); "+
			"repeat the command", err)
	} else {
		err = d.prepare(ctx, in)
	}
	if err != nil {
		return errors.Join(err, announce(ready, "", err))
	}
	defer d.lock.Close()
	pruning, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { d.prune(pruning) })
	defer work.Wait()
	defer end()
	if d.managed() {
		return d.proxy(ctx, ready)
	}
	err = d.advertise(ctx)
	if err == nil {
		err = d.listenClients()
	}
	if err == nil {
		err = d.listen()
	}
	if err == nil {
		err = d.save("", nil, d.lastRun, false)
	}
	if err != nil {
		return errors.Join(err, announce(ready, "", err), d.forget())
	}
	if err := announce(ready, d.socket, nil); err != nil {
		return errors.Join(err, d.forget()) // the process that started it has gone
	}
	return d.serve(ctx)
}

// announce writes the line that the process that started the driver waits for.
func announce(ready io.WriteCloser, socket string, problem error) error {
	msg := map[string]string{"socket": socket}
	if problem != nil {
		msg["error"] = problem.Error()
	}
	err := json.NewEncoder(ready).Encode(msg)
	if cerr := ready.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("the notebook or shell that started the driver ended before the driver was ready (%w), "+
			"so the driver ends too; repeat the command", err)
	}
	return nil
}

// driver is the process of one cluster. One goroutine uses it; goroutines that serve starts
// have ended when serve returns.
type driver struct {
	clusterRequest
	directory
	listeners
	hosting   cluster.DriverHost // nil, unless this driver is one that its engine runs
	opt       Options
	log       *slog.Logger
	name      string
	lock      io.Closer
	stateDir  string
	since     time.Time
	authority *auth.Authority
	coord     *coordinator.Coordinator
	lines     *lines.Handler // of the notebook's host, for browsers
	// environment is the archive of --venv that a hosted driver's proxy uploaded; nil: none.
	environment *clusterpb.Environment
}

// clusterRequest is the driver's input.
type clusterRequest struct {
	req         *clusterpb.ReserveRequest
	engine      cluster.Engine
	old         *state.State            // saved by the driver that this one replaces; nil: none
	interrupted savedStart              // of the run that a hosted driver's predecessor left
	autostart   *clusterpb.StartRequest // the run that the driver itself starts; nil: clients start runs
}

// directory holds the cluster's runs.
type directory struct {
	dir     string       // an absolute path or a URI
	remote  RemoteDir    // set if dir is a URI
	spool   *spool.Spool // nil if dir is a folder of this host
	lastRun int32
	earlier int32 // the last run before this cluster's first driver
}

// listeners are the driver's sockets for clients, agents and browsers.
type listeners struct {
	clients net.Listener
	socket  string // of clients
	agents  net.Listener
	address string       // of agents
	bind    string       // the host of address, if the backend chose it; "" with --advertise
	pages   net.Listener // of a hosted driver
}

// managed returns whether this process is the proxy of a driver that the engine runs.
func (d *driver) managed() bool {
	return d.hosting == nil && d.req.GetEngine()[cluster.EngineManaged] != ""
}

// prepare reads the driver's input, locks the cluster's state folder and opens its directory.
func (d *driver) prepare(ctx context.Context, in state.DriverInput) error {
	d.req, d.old = &clusterpb.ReserveRequest{}, in.State
	if err := protojson.Unmarshal(in.Request, d.req); err != nil {
		return errtext.Fault("read the request: %w", err)
	}
	d.name = d.req.GetName()
	d.autostart, d.req.Begin = d.req.GetBegin(), nil // it is large, and may hold secrets
	var err error
	if d.stateDir, err = state.Dir(d.name); err != nil {
		return err
	}
	if d.hosting != nil { // the container's folder is empty
		if err := os.MkdirAll(d.stateDir, 0o700); err != nil {
			return fmt.Errorf("make the cluster's folder: %w", err)
		}
	}
	if d.lock, err = state.LockDriver(ctx, d.name); err != nil {
		return err // without forget: another driver owns the folder
	}
	if err := cluster.Validate(d.req.GetRoles()); err != nil {
		return errors.Join(err, d.forget())
	}
	var known bool
	if d.engine, known = d.opt.Engines.Find(d.req.GetBackend()); !known {
		return errors.Join(fmt.Errorf("this tfcluster has no engine for --backend %s: choose another --backend",
			d.req.GetBackend()), d.forget())
	}
	d.useHadoop()
	place := d.openDirectory
	if d.managed() {
		place = d.checkRemoteDirectory
	}
	if err := place(ctx); err != nil {
		return errors.Join(err, d.forget())
	}
	if d.old != nil {
		d.since, d.lastRun, d.earlier = d.old.Since, max(d.lastRun, d.old.LastRun), d.old.Earlier
	} else {
		d.earlier = d.lastRun
	}
	switch {
	case in.KeyPEM != "":
		d.authority, err = auth.LoadAuthority([]byte(in.CertPEM), []byte(in.KeyPEM))
	case d.old != nil:
		d.authority, err = auth.LoadAuthority([]byte(d.old.CertPEM), []byte(d.old.KeyPEM))
	default:
		d.authority, err = auth.NewAuthority(d.name)
	}
	return err
}

// forget closes the directory and removes the state of a new cluster that was not created.
// The state of a driver that takes over is kept.
func (d *driver) forget() error {
	err := d.closeDirectory()
	if d.old != nil {
		return err
	}
	s := &state.State{Name: d.name, Socket: d.socket}
	return errors.Join(err, s.Forget())
}

func (d *driver) save(allocation string, saved []byte, lastRun int32, detached bool) error {
	request, err := protojson.Marshal(d.req)
	if err != nil {
		return errtext.Fault("encode the request: %w", err)
	}
	if saved == nil && d.old != nil {
		saved = d.old.Saved
	}
	address := d.address
	if d.coord != nil { // it has the current address if that changed
		address = d.coord.Address()
	}
	s := &state.State{
		Name: d.name, Backend: d.req.GetBackend(), Owner: d.req.GetOwner(), Socket: d.socket, Dir: d.dir, Since: d.since,
		Driver: state.ThisProcess(), Allocation: allocation, Saved: saved, Request: request, Address: address,
		CertPEM: string(d.authority.CertPEM), KeyPEM: string(d.authority.KeyPEM), LastRun: lastRun, Earlier: d.earlier,
		Detached: detached, Version: d.opt.Version,
	}
	if d.hosting != nil {
		return d.saveHosted(*s)
	}
	return s.Save()
}

// leastAlive is how long an executor or a client may be stopped at least without losing its connection.
const leastAlive = 5 * time.Second

// serve runs the cluster until it ends, then removes its state.
func (d *driver) serve(ctx context.Context) error {
	tlsConfig, err := d.authority.ServerTLS()
	if err != nil {
		return err
	}
	d.coord = coordinator.New(d.config())
	clients := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32))
	pending := handshake.NewLimiter(handshake.AtOnce(), handshake.Minimum)
	received := clusterpb.MaxAgentMessage
	if d.hosting != nil { // clients are served there too, and their programs may be large
		received = math.MaxInt32
	}
	agents := grpc.NewServer(append(auth.OwnersOnly(),
		grpc.MaxRecvMsgSize(received), grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.Creds(&handshakeCredentials{credentials.NewTLS(tlsConfig), pending, d.coord.Feeds().Produce}),
		grpc.ConnectionTimeout(handshake.Timeout),
		// Heartbeats tell which executor is lost. A cut that its tasks outlive must not end their feeds and groups.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 5 * time.Second, Timeout: max(leastAlive, d.coord.OrphanGrace()),
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)...)
	d.register(agents, clients)
	var g errgroup.Group
	if d.hosting == nil {
		g.Go(func() error { return serving.Serve("notebooks and shells", clients, d.clients) })
	}
	serve := func(ln net.Listener) {
		g.Go(func() error { return serving.Serve("executors", agents, pending.Listen(ln)) })
	}
	serve(d.agents)
	watching, unwatch := context.WithCancel(ctx)
	if d.bind != "" && d.hosting == nil {
		g.Go(func() error { d.watchAddress(watching, addressEvery, serve); return nil })
	}
	if d.pages != nil {
		g.Go(func() error { d.servePage(watching); return nil })
	}
	if d.opt.Events.Read != nil {
		g.Go(func() error { d.coord.WatchEvents(watching, d.opt.Events); return nil })
	}
	if d.spool != nil {
		g.Go(func() error { d.spool.Run(watching); return nil })
	}
	err = d.coord.Run(ctx)
	unwatch()
	d.closeLines()
	// The coordinator has ended its streams; clients that do not read are cut off.
	serving.Stop(clients)
	serving.Stop(agents)
	err = errors.Join(err, g.Wait(), d.closeDirectory())
	if errors.Is(err, cluster.ErrEngineAway) {
		return err // the state is kept for the next driver
	}
	return errors.Join(err, (&state.State{Name: d.name, Socket: d.socket}).Forget())
}

// config is the configuration of the coordinator.
func (d *driver) config() coordinator.Config {
	cfg := coordinator.Config{
		Name: d.name, Version: d.opt.Version, Request: d.req, Address: d.address, Authority: d.authority,
		StateDir: d.stateDir, Directory: coordinator.Directory{Dir: d.dir, LastRun: d.lastRun, Earlier: d.earlier},
		Backend: d.engine.Backend, OrphanGrace: d.engine.OrphanGrace, OnThisHost: d.engine.OnThisHost, Program: d.opt.Program,
		Hooks: coordinator.Hooks{SaveState: d.save, EndReason: d.endReason()}, Log: d.log,
	}
	if d.old != nil {
		cfg.Recovered.Saved, cfg.Recovered.Allocation = d.old.Saved, d.old.Allocation
		if d.hosting == nil { // otherwise the engine publishes the address to agents
			cfg.Recovered.Address = d.old.Address
		}
		if cfg.Recovered.Saved == nil {
			cfg.Recovered.Saved = []byte("null")
		}
	}
	if d.hosting == nil {
		cfg.TensorBoard = d.board(
			func(ctx context.Context, req *clusterpb.LogsRequest, send func(*clusterpb.LinesReply) error) error {
				return lines.Local(d.coord.Control())(ctx, req, send)
			})
	} else if d.showsBoard() { // with the tasks' Python, which exists on the node; its page shows others no lines
		cfg.TensorBoard = d.opt.TensorBoard(d.req.GetPython(), d.stateDir, d.stateDir, d.name, nil)
	}
	if d.spool != nil {
		cfg.Spool = d.spool
	}
	if d.hosting != nil {
		cfg.Artifacts = coordinator.Artifacts{Source: d.hosting.OpenArtifact, Environment: d.environment}
		cfg.Begin, cfg.Timing.SaveEvery, cfg.Hooks.Flush, cfg.Hooks.SaveStart = d.autostart, hostedSaveInterval,
			d.hosting.Flush, d.saveStart
		if d.old != nil {
			cfg.Recovered.Start, cfg.Recovered.StartRun, cfg.Recovered.Detached = d.interrupted.Start, d.interrupted.Run,
				d.old.Detached
		}
	} else {
		cfg.Hooks.Record = d.record(d.lastRun)
	}
	d.hadoop(&cfg)
	return cfg
}

// board returns the TensorBoard on the notebook's host, whose proxy also serves the lines of source;
// nil: there is none.
func (d *driver) board(source lines.Source) coordinator.TensorBoards {
	if d.opt.TensorBoard == nil {
		return nil
	}
	folder := filepath.Dir(d.socket)
	d.lines = lines.New(d.name, source)
	return d.opt.TensorBoard(d.req.GetTensorboardPython(), d.stateDir, folder, filepath.Base(folder), d.lines)
}

// closeLines ends the streams of lines to browsers.
func (d *driver) closeLines() {
	if d.lines != nil {
		d.lines.Close()
	}
}

// register adds the services: those of a hosted driver's clients, too, are on the agents' port.
func (d *driver) register(agents, clients *grpc.Server) {
	clusterpb.RegisterCoordinatorServer(agents, d.coord)
	clusterpb.RegisterFeedsServer(agents, d.coord.Feeds())
	clusterpb.RegisterGroupsServer(agents, d.coord.Groups())
	if d.hosting != nil {
		clients = agents
	}
	clusterpb.RegisterControlServer(clients, d.coord.Control())
	clusterpb.RegisterFeedControlServer(clients, d.coord.Feeds())
}

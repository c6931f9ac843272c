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
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/coordinator"
	"github.com/tfcluster/tfcluster/cluster/driver/serving"
	"github.com/tfcluster/tfcluster/cluster/runfiles/spool"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Options is what main knows and the driver does not.
type Options struct {
	Version string
	Program string // the binary that agents run
	// Engines are those that there are; each driver uses one.
	Engines cluster.Engines
	// TensorBoard makes the cluster's TensorBoard; may be nil. It is given the
	// interpreter that has tensorboard, and the cluster's state folder and sockets' folder.
	TensorBoard func(python, stateDir, socketDir, name string) coordinator.TensorBoards
	// ShowBoard serves an open TensorBoard below a path of the page that a hosted driver's
	// engine shows; may be nil.
	ShowBoard func(path string, at *clusterpb.TensorBoardReply) http.Handler
	// Elsewhere gives the file system of a --dir that is a URI; nil: there is none.
	Elsewhere func(dir string) (Elsewhere, error)
	// Hadoop is the configuration of this host, with a cluster's directory; nil: there is none.
	Hadoop func(dir string) (Hadoop, error)
	// Events reads and writes event files below a run's log folder; Read may be nil.
	Events coordinator.EventFiles
}

// Main reads its input, says on word where it listens, and serves until the cluster
// is released.
func Main(ctx context.Context, opt Options, stdin io.Reader, word io.WriteCloser) error {
	// From the first: whoever gives up on a driver ends it by a signal, and it leaves nothing.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGHUP)
	d := &driver{opt: opt, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), since: time.Now()}
	var in state.DriverInput
	err := json.NewDecoder(stdin).Decode(&in)
	if err != nil {
		err = fmt.Errorf("read the request: %w", err)
	} else {
		err = d.prepare(ctx, in)
	}
	if err != nil {
		return errors.Join(err, say(word, "", err))
	}
	defer d.claim.Close()
	pruning, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { d.prune(pruning) })
	defer work.Wait()
	defer end()
	if d.managed() {
		return d.proxy(ctx, word)
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
		return errors.Join(err, say(word, "", err), d.forget())
	}
	if err := say(word, d.socket, nil); err != nil {
		return errors.Join(err, d.forget()) // nobody waits for it any more
	}
	return d.serve(ctx)
}

// say writes the one line that whoever started the driver waits for.
func say(word io.WriteCloser, socket string, problem error) error {
	msg := map[string]string{"socket": socket}
	if problem != nil {
		msg["error"] = problem.Error()
	}
	err := json.NewEncoder(word).Encode(msg)
	if cerr := word.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("answer whoever started the driver: %w", err)
	}
	return nil
}

// driver is the process of one cluster. One goroutine uses it; what serve starts has ended
// when serve returns.
type driver struct {
	given
	directory
	listeners
	hosting   cluster.DriverHost // nil, unless this driver is one that its engine runs
	opt       Options
	log       *slog.Logger
	name      string
	claim     io.Closer
	stateDir  string
	since     time.Time
	authority *auth.Authority
	coord     *coordinator.Coordinator
	// environment is of --venv, which a hosted driver's client packed; nil: there is none.
	environment *clusterpb.Environment
}

// given is what the driver was asked for.
type given struct {
	req    *clusterpb.ReserveRequest
	engine cluster.Engine
	old    *state.State            // of the driver that it takes over from; nil: there was none
	cutOff keptStart               // of a run that the last driver of a hosted cluster began
	begin  *clusterpb.StartRequest // the run that it is made for, which nobody else begins; nil: clients begin runs
}

// directory is where the cluster's runs lie.
type directory struct {
	dir       string       // in full
	elsewhere Elsewhere    // where dir is a URI
	spool     *spool.Spool // nil where dir is a folder of this host
	lastRun   int32
	earlier   int32 // the last run before this cluster's first driver
}

// listeners are where clients, agents and browsers reach the driver.
type listeners struct {
	clients net.Listener
	socket  string // of clients
	agents  net.Listener
	address string       // of agents
	bind    string       // the backend's choice where the person made none
	pages   net.Listener // of a hosted driver
}

// managed is whether the engine is to run the cluster's driver, which this one is not.
func (d *driver) managed() bool {
	return d.hosting == nil && d.req.GetEngine()[cluster.EngineManaged] != ""
}

// prepare reads what the driver was given, and claims the cluster.
func (d *driver) prepare(ctx context.Context, in state.DriverInput) error {
	d.req, d.old = &clusterpb.ReserveRequest{}, in.State
	if err := protojson.Unmarshal(in.Request, d.req); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	d.name = d.req.GetName()
	d.begin, d.req.Begin = d.req.GetBegin(), nil // it is large, and may hold secrets
	var err error
	if d.stateDir, err = state.Dir(d.name); err != nil {
		return err
	}
	if d.hosting != nil { // the container's folder is empty
		if err := os.MkdirAll(d.stateDir, 0o700); err != nil {
			return fmt.Errorf("make the cluster's folder: %w", err)
		}
	}
	if d.claim, err = state.LockDriver(ctx, d.name); err != nil {
		return err // the folder is another's
	}
	if err := cluster.Validate(d.req.GetRoles()); err != nil {
		return errors.Join(err, d.forget())
	}
	var known bool
	if d.engine, known = d.opt.Engines.Find(d.req.GetBackend()); !known {
		return errors.Join(fmt.Errorf("not yet: --backend %s", d.req.GetBackend()), d.forget())
	}
	if err := d.useHadoop(); err != nil {
		return errors.Join(err, d.forget())
	}
	place := d.place
	if d.managed() {
		place = d.placeHosted
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

// forget removes the claim to the name of a cluster that never came to be.
func (d *driver) forget() error {
	err := d.leave()
	if d.old != nil {
		return err
	}
	s := &state.State{Name: d.name, Socket: d.socket}
	return errors.Join(err, s.Forget())
}

func (d *driver) save(allocation string, saved []byte, lastRun int32, detached bool) error {
	request, err := protojson.Marshal(d.req)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	if saved == nil && d.old != nil {
		saved = d.old.Saved
	}
	address := d.address
	if d.coord != nil { // which knows whether this host has another by now
		address = d.coord.Address()
	}
	s := &state.State{
		Name: d.name, Backend: d.req.GetBackend(), Owner: d.req.GetOwner(), Socket: d.socket, Dir: d.dir, Since: d.since, Driver: state.ThisProcess(),
		Allocation: allocation, Saved: saved, Request: request, Address: address, CertPEM: string(d.authority.CertPEM), KeyPEM: string(d.authority.KeyPEM),
		LastRun: lastRun, Earlier: d.earlier, Detached: detached, Version: d.opt.Version,
	}
	if d.hosting != nil {
		return d.keep(*s)
	}
	return s.Save()
}

// serve runs the cluster to its end and leaves nothing behind.
func (d *driver) serve(ctx context.Context) error {
	tlsConfig, err := d.authority.ServerTLS()
	if err != nil {
		return err
	}
	cfg := coordinator.Config{
		Name: d.name, Version: d.opt.Version, Request: d.req, Address: d.address, Authority: d.authority, StateDir: d.stateDir,
		Directory: coordinator.Directory{Dir: d.dir, LastRun: d.lastRun, Earlier: d.earlier},
		Backend:   d.engine.Backend, OrphanGrace: d.engine.OrphanGrace, Here: d.engine.OnThisHost, Program: d.opt.Program, Hooks: coordinator.Hooks{SaveState: d.save}, Log: d.log,
	}
	if d.old != nil {
		cfg.Recovered.Saved, cfg.Recovered.Allocation = d.old.Saved, d.old.Allocation
		if d.hosting == nil { // else its engine tells the agents
			cfg.Recovered.Address = d.old.Address
		}
		if cfg.Recovered.Saved == nil {
			cfg.Recovered.Saved = []byte("null")
		}
	}
	if d.opt.TensorBoard != nil && d.hosting == nil {
		cfg.TensorBoard = d.opt.TensorBoard(d.req.GetTensorboardPython(), d.stateDir, filepath.Dir(d.socket), filepath.Base(filepath.Dir(d.socket)))
	} else if d.showsBoard() { // by the tasks' Python, which the node has
		cfg.TensorBoard = d.opt.TensorBoard(d.req.GetPython(), d.stateDir, d.stateDir, d.name)
	}
	if d.spool != nil {
		cfg.Spool = d.spool
	}
	if d.hosting != nil {
		cfg.Artifacts = coordinator.Artifacts{Source: d.hosting.OpenArtifact, Environment: d.environment}
		cfg.Begin, cfg.Timing.SaveEvery, cfg.Hooks.Kept, cfg.Hooks.SaveStart = d.begin, hostedSaves, d.hosting.Flush, d.keepStart
		if d.old != nil {
			cfg.Recovered.Start, cfg.Recovered.StartRun, cfg.Recovered.Detached = d.cutOff.Start, d.cutOff.Run, d.old.Detached
		}
	} else {
		cfg.Hooks.Record = d.record(d.lastRun)
	}
	d.hadoop(&cfg)
	d.coord = coordinator.New(cfg)
	clients := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32))
	pending := newHandshakes(handshakesAtOnce(), handshakeMinimum)
	agents := grpc.NewServer(append(append(append(d.messageLimits(), auth.OwnersOnly()...), pending.options(tlsConfig)...), grpc.KeepaliveParams(keepalive.ServerParameters{
		Time: 5 * time.Second, Timeout: 5 * time.Second,
	}), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))...)
	clusterpb.RegisterCoordinatorServer(agents, d.coord)
	var g errgroup.Group
	if d.hosting != nil {
		clusterpb.RegisterControlServer(agents, d.coord.Control())
	} else {
		clusterpb.RegisterControlServer(clients, d.coord.Control())
		g.Go(func() error { return serving.Serve("clients", clients, d.clients) })
	}
	serve := func(ln net.Listener) {
		g.Go(func() error { return serving.Serve("agents", agents, pending.listen(ln)) })
	}
	serve(d.agents)
	watching, unwatch := context.WithCancel(ctx)
	if d.bind != "" && d.hosting == nil {
		g.Go(func() error { d.watchAddress(watching, addressEvery, serve); return nil })
	}
	if d.pages != nil {
		g.Go(func() error { return d.servePage(watching) })
	}
	if d.opt.Events.Read != nil {
		g.Go(func() error { d.coord.WatchEvents(watching, d.opt.Events); return nil })
	}
	if d.spool != nil {
		g.Go(func() error { d.spool.Run(watching); return nil })
	}
	err = d.coord.Run(ctx)
	unwatch()
	// Streams end by themselves now that the coordinator is done; a client that does
	// not read is not waited for.
	serving.Stop(clients)
	serving.Stop(agents)
	err = errors.Join(err, g.Wait(), d.leave())
	if errors.Is(err, cluster.ErrEngineAway) {
		return err // the state is another driver's to take up
	}
	return errors.Join(err, (&state.State{Name: d.name, Socket: d.socket}).Forget())
}

// messageLimits limits the messages to the server for agents. An engine's driver serves clients there too, whose
// programs may be large.
func (d *driver) messageLimits() []grpc.ServerOption {
	received := clusterpb.MaxAgentMessage
	if d.hosting != nil {
		received = math.MaxInt32
	}
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(received), grpc.MaxSendMsgSize(math.MaxInt32)}
}

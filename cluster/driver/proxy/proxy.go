// Package proxy is the user's local process of a cluster whose driver the engine runs: it
// submits that driver and forwards the calls of clients on this host to it. The cluster does
// not depend on it: after a proxy dies, another finds the cluster by the saved state.
package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/coordinator"
	"github.com/tfcluster/tfcluster/cluster/driver/serving"
	"github.com/tfcluster/tfcluster/cluster/ship"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Config is the configuration of a Proxy.
type Config struct {
	Name, Version string
	Request       *clusterpb.ReserveRequest
	// Begin is the run that the driver itself starts; nil: clients start runs.
	Begin     *clusterpb.StartRequest
	Authority *auth.Authority
	Launcher  cluster.DriverLauncher
	// StateDir is the cluster's own folder on this host; Dir, a URI, holds its runs.
	StateDir, Dir string
	Program       string       // the binary that agents run
	Since         time.Time    // the cluster was reserved
	Old           *state.State // saved by an earlier proxy; nil: none
	Clients       net.Listener // the socket for clients
	// TensorBoard serves the local copy of Remote's event files; nil: there is none.
	TensorBoard coordinator.TensorBoards
	// Remote opens the file system on which Dir lies.
	Remote func() (Remote, io.Closer, error)
	// Save saves the driver's application ID and the launcher's state for the next proxy.
	Save func(allocation string, saved []byte) error
	// Record writes the cluster's ClusterRecord; how is the final state of its application,
	// "" while it runs.
	Record func(application, how string)
	Log    *slog.Logger
}

// Proxy finds the driver that the engine runs, also after a restart on another node, and
// forwards the calls of clients on this host to it. One goroutine calls Save and Run.
type Proxy struct {
	cfg       Config
	board     localBoard
	artifacts *ship.Store   // local files and environments to upload
	recheck   chan struct{} // capacity 1: the driver's address may have changed
	done      chan struct{} // closed when the cluster is over
	end       func()        // ends the cluster by force
	began     time.Time

	mu   sync.Mutex
	link // guarded by mu
}

// New returns a proxy. If cfg.Old names a driver, it finds that one.
func New(cfg Config) (*Proxy, error) {
	p := &Proxy{
		cfg: cfg, recheck: make(chan struct{}, 1), done: make(chan struct{}), began: time.Now(),
		artifacts: coordinator.NewArtifactStore(cfg.StateDir), board: localBoard{process: cfg.TensorBoard},
		link: link{changed: make(chan struct{})},
	}
	if cfg.Old == nil || len(cfg.Old.Saved) == 0 || string(cfg.Old.Saved) == "null" {
		return p, nil
	}
	var err error
	if p.remote, err = cfg.Launcher.Find(cfg.Request, cfg.Old.Saved); err != nil {
		p.artifacts.Close()
		return nil, err
	}
	return p, nil
}

// Close frees a proxy on which Run is not called; Run frees it itself.
func (p *Proxy) Close() { p.artifacts.Close() }

// Run finds the driver, or submits one, and serves clients until the cluster is over or ctx
// ends. In the latter case the cluster goes on, unless no client knows it yet. kept says
// that it goes on and its state must be kept for the next proxy.
func (p *Proxy) Run(ctx context.Context) (kept bool, err error) {
	defer p.artifacts.Close()
	clients := grpc.NewServer(grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodec(raw{}),
		grpc.MaxRecvMsgSize(maxInt), grpc.MaxSendMsgSize(maxInt))
	var g errgroup.Group
	following, stop := context.WithCancel(ctx)
	defer stop()
	p.end = stop
	g.Go(func() error { return serving.Serve("notebooks and shells", clients, p.cfg.Clients) })
	err = p.submit(following)
	if err == nil {
		err = p.follow(following)
	}
	hosted := p.look().remote
	alone := hosted != nil && p.cfg.Begin != nil // its driver starts the run without this process
	if ctx.Err() != nil && (alone || p.published()) && !p.look().shutdownAsked && !errors.Is(err, cluster.ErrEnded) {
		serving.Stop(clients)
		return true, errors.Join(g.Wait(), p.close())
	}
	var ended error
	if hosted != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		ended = hosted.Kill(ending)
		cancel()
	}
	p.record(p.ending(err))
	p.setEnded(err)
	if !p.look().shutdownAsked { // lets clients read the reason
		pause(ctx, nil, failureDelay)
	}
	serving.Stop(clients)
	if p.look().shutdownAsked {
		err = nil
	}
	return false, errors.Join(err, ended, g.Wait(), p.close())
}

// Ended is the final state, passed to Config.Record, of an application that a client ended.
const Ended = "ended"

// ending returns the final state of the cluster's application, in a few words.
func (p *Proxy) ending(err error) string {
	if p.look().shutdownAsked || err == nil || !errors.Is(err, cluster.ErrEnded) {
		return Ended
	}
	words := strings.TrimPrefix(err.Error(), cluster.ErrEnded.Error()+": ")
	return strings.TrimPrefix(words, p.look().remote.ID()+" is ")
}

// Times of the proxy.
const (
	submitLimit   = time.Minute            // to submit the driver
	endLimit      = 30 * time.Second       // to end the cluster
	failureDelay  = 2 * time.Second        // for clients to read why a cluster is over
	firstPoll     = 20 * time.Millisecond  // the first interval of polling the driver's address
	waitingPoll   = 250 * time.Millisecond // the longest one while no driver answers
	connectedPoll = 5 * time.Second        // the interval while one answers
	connectLimit  = 5 * time.Second        // for the driver to answer
)

// submit submits the driver to the engine, unless an earlier proxy has.
func (p *Proxy) submit(ctx context.Context) error {
	if p.look().remote != nil {
		return nil
	}
	p.setWaiting("waiting for the engine")
	if r, ok := p.cfg.Launcher.(cluster.RemoteEngine); ok {
		p.setWaiting(r.InitialStatus(p.cfg.Request))
	}
	if p.cfg.Request.GetOneRun() && p.cfg.Old != nil && p.cfg.Begin == nil {
		return errors.New("the process that submits the run died before YARN had the run: run it again")
	}
	environment, err := p.uploadEnvironment(ctx)
	if err != nil {
		return err
	}
	if p.cfg.Begin != nil {
		if err := p.uploadFiles(ctx, p.cfg.Begin); err != nil {
			return err
		}
	}
	whole := proto.CloneOf(p.cfg.Request)
	whole.Begin = p.cfg.Begin
	request, err := protojson.Marshal(whole)
	if err != nil {
		return errtext.Fault("encode the request: %w", err)
	}
	input, err := json.Marshal(state.DriverInput{
		Request: request, Environment: environment, CertPEM: string(p.cfg.Authority.CertPEM),
		KeyPEM: string(p.cfg.Authority.KeyPEM),
	})
	if err != nil {
		return errtext.Fault("encode the request: %w", err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// Not cancelled with ctx: an application would remain that nobody knows of.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitLimit)
	defer cancel()
	hosted, err := p.cfg.Launcher.Submit(ctx, cluster.Request{
		Cluster: p.cfg.Name, Identity: p.cfg.Authority.ID(), Executors: cluster.ExecutorRequests(p.cfg.Request.GetRoles()),
		Reserve: p.cfg.Request, Program: p.cfg.Program, StateDir: p.cfg.StateDir,
	}, input)
	if err != nil {
		return err
	}
	// Saved before clients see it: then the next proxy can find it.
	if err := p.cfg.Save(hosted.ID(), hosted.Saved()); err != nil {
		return errors.Join(fmt.Errorf("%s was submitted and is ended again, because the cluster's state cannot be saved: %w",
			hosted.ID(), err), endUnpublished(ctx, hosted))
	}
	p.mu.Lock()
	p.remote = hosted
	p.mu.Unlock()
	p.record("")
	p.wake()
	return nil
}

// endUnpublished ends a driver that no client knows.
func endUnpublished(ctx context.Context, hosted cluster.RemoteDriver) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	return errors.Join(hosted.Kill(ctx), hosted.Close())
}

// Save saves the state for the next proxy and the cluster's record.
func (p *Proxy) Save() error {
	hosted := p.look().remote
	if hosted == nil {
		return p.cfg.Save("", nil)
	}
	p.record("")
	return p.cfg.Save(hosted.ID(), hosted.Saved())
}

// follow keeps a connection to the driver until the engine reports its final end, or ctx
// ends.
func (p *Proxy) follow(ctx context.Context) error {
	pause := firstPoll
	for {
		address, waits, err := p.look().remote.Endpoint(ctx)
		switch {
		case errors.Is(err, cluster.ErrEnded):
			return err
		case err != nil:
			p.setWaiting(err.Error()) // a connected driver may still answer
		case address == "" && p.look().ready(): // a restarted engine does not know the address yet
		case address == "":
			p.disconnect(waits)
		default:
			p.connect(ctx, address, waits)
		}
		if p.look().conn != nil {
			pause = connectedPoll
		} else {
			pause = min(pause*3/2, waitingPoll)
			if limit := p.reserveTimeout(); limit > 0 && time.Since(p.began) > limit {
				return fmt.Errorf("%w after %s: %s", errLate, limit, p.look().waiting)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.recheck:
			pause = firstPoll
		case <-time.After(pause):
		}
	}
}

// errLate: the engine did not start the driver within the reservation's timeout.
var errLate = errors.New("not reserved")

// reserveTimeout returns the reservation's timeout; 0 once a driver has answered, which applies
// it itself.
func (p *Proxy) reserveTimeout() time.Duration {
	if p.published() {
		return 0
	}
	return time.Duration(p.cfg.Request.GetTimeoutMillis()) * time.Millisecond
}

// connect connects to the driver at an address, unless it is connected to that. waits is the engine's word on a driver
// that does not answer.
func (p *Proxy) connect(ctx context.Context, address, waits string) {
	now := p.look()
	if now.conn != nil && now.address == address && !now.broken() {
		if now.ready() {
			p.setHeard()
		}
		return
	}
	waiting := ""
	if now.conn != nil && now.address == address {
		now.conn = nil
		waiting = now.silence()
	}
	p.disconnect(waiting)
	conn, err := auth.DialHosted(p.cfg.Authority, address)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, connectLimit)
		_, err = clusterpb.NewControlClient(conn).Status(limited, &clusterpb.StatusRequest{})
		cancel()
		if err != nil {
			_ = conn.Close() // the call's error is reported
		}
	}
	if err != nil && now.address == address { // it has answered there before
		p.setWaiting(now.silence())
		return
	}
	if err != nil {
		here, _ := os.Hostname() // "" is acceptable in the text
		p.setWaiting(fmt.Sprintf("the cluster's driver runs on a node, but %s cannot talk to it at %s: %s; "+
			"without --managed the nodes dial this machine instead", here, address, status.Convert(err).Message()))
		return
	}
	p.mu.Lock()
	p.conn, p.address, p.waiting, p.heard, p.replaces = conn, address, "", time.Now(), waits
	p.mu.Unlock()
	p.wake()
}

// close ends TensorBoard and the connections.
func (p *Proxy) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	err := p.board.close(ctx)
	p.disconnect("")
	if h := p.look().remote; h != nil {
		err = errors.Join(err, h.Close())
	}
	return err
}

// record writes the cluster's record; how is the final state of its application, "" while it
// runs.
func (p *Proxy) record(how string) {
	if hosted := p.look().remote; hosted != nil {
		p.cfg.Record(hosted.ID(), how)
	}
}

// Package proxy is the process beside a notebook of a cluster whose driver the engine runs: it
// has that driver started, and hands it what clients on this host ask. The cluster does not
// need it: one that dies is followed by another, which finds the cluster by the saved state.
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
	"github.com/tfcluster/tfcluster/cluster/coordinator"
	"github.com/tfcluster/tfcluster/cluster/driver/serving"
	"github.com/tfcluster/tfcluster/cluster/ship"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Config is what a Proxy is made of.
type Config struct {
	Name, Version string
	Request       *clusterpb.ReserveRequest
	// Begin is the run that the cluster is made for; nil: clients begin runs.
	Begin     *clusterpb.StartRequest
	Authority *auth.Authority
	Launcher  cluster.DriverLauncher
	// StateDir is the cluster's own folder on this host; Dir, a URI, holds its runs.
	StateDir, Dir string
	Program       string       // the binary that agents run
	Since         time.Time    // the cluster was reserved
	Old           *state.State // what an earlier proxy saved; nil: there was none
	Clients       net.Listener // the socket for clients
	// TensorBoard serves the copy of Remote's event files on this host; nil: there is none.
	TensorBoard coordinator.TensorBoards
	// Remote opens the file system on which Dir lies.
	Remote func() (Remote, io.Closer, error)
	// Save keeps what the next proxy needs of the driver that the engine runs.
	Save func(allocation string, saved []byte) error
	// Record keeps what is to be known of the cluster after its end; how is how its application
	// ended, "" while it lives.
	Record func(application, how string)
	Log    *slog.Logger
}

// Proxy finds the driver that the engine runs, wherever the engine starts it again, and hands
// it what clients on this host ask. Its methods may be called from any goroutine, but New,
// Save and Run by one.
type Proxy struct {
	cfg    Config
	boards boards
	depot  *ship.Store   // of what is given on this host
	poke   chan struct{} // capacity 1: the driver may be elsewhere
	done   chan struct{} // closed when the cluster is over
	end    func()        // has the cluster ended by force
	began  time.Time

	mu      sync.Mutex
	remote  cluster.RemoteDriver // guarded by mu: nil until it is submitted
	conn    *grpc.ClientConn     // guarded by mu: nil while no driver answers
	address string               // guarded by mu: of conn
	waits   string               // guarded by mu: for what, while no driver answers
	changed chan struct{}        // guarded by mu: closed at each change, and another made
	over    error                // guarded by mu: why the cluster is over
	wanted  bool                 // guarded by mu: a client asked for the end
}

// New prepares a proxy, and finds the driver that an earlier proxy had the engine run.
func New(cfg Config) (*Proxy, error) {
	p := &Proxy{
		cfg: cfg, poke: make(chan struct{}, 1), done: make(chan struct{}), began: time.Now(), changed: make(chan struct{}),
		depot: coordinator.NewDepot(cfg.StateDir), boards: boards{board: cfg.TensorBoard},
	}
	if cfg.Old == nil || len(cfg.Old.Saved) == 0 || string(cfg.Old.Saved) == "null" {
		return p, nil
	}
	var err error
	if p.remote, err = cfg.Launcher.Find(cfg.Request, cfg.Old.Saved); err != nil {
		p.depot.Close()
		return nil, err
	}
	return p, nil
}

// Close removes what the proxy of a cluster that never came to be holds. Run closes by itself.
func (p *Proxy) Close() { p.depot.Close() }

// Run finds the driver and serves clients until the cluster is over, or ctx ends. In that case
// the cluster goes on, unless nobody has heard of it yet. kept is whether it goes on: its state
// is another proxy's to take up.
func (p *Proxy) Run(ctx context.Context) (kept bool, err error) {
	defer p.depot.Close()
	clients := grpc.NewServer(grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(maxInt), grpc.MaxSendMsgSize(maxInt))
	var g errgroup.Group
	following, stop := context.WithCancel(ctx)
	defer stop()
	p.end = stop
	g.Go(func() error { return serving.Serve("clients", clients, p.cfg.Clients) })
	err = p.submit(following)
	if err == nil {
		err = p.follow(following)
	}
	hosted := p.remoteDriver()
	alone := hosted != nil && p.cfg.Begin != nil // its run needs nobody here, whether or not its driver has answered yet
	if ctx.Err() != nil && (alone || p.known()) && !p.asked() && !errors.Is(err, cluster.ErrEnded) {
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
	p.tellOver(err)
	if !p.asked() { // whoever waits for the reservation, or calls next, reads why
		select {
		case <-time.After(lastWords):
		case <-ctx.Done():
		}
	}
	serving.Stop(clients)
	if p.asked() {
		err = nil
	}
	return false, errors.Join(err, ended, g.Wait(), p.close())
}

// Ended is how an application ended that a client had ended.
const Ended = "ended"

// ending is how the cluster's application ended, in a few words.
func (p *Proxy) ending(err error) string {
	if p.asked() || err == nil || !errors.Is(err, cluster.ErrEnded) {
		return Ended
	}
	words := strings.TrimPrefix(err.Error(), cluster.ErrEnded.Error()+": ")
	return strings.TrimPrefix(words, p.remoteDriver().ID()+" is ")
}

// Times of the proxy.
const (
	submitLimit = time.Minute            // to have the engine start the driver
	endLimit    = 30 * time.Second       // to end the cluster
	lastWords   = 2 * time.Second        // for clients to hear why a cluster is over
	firstLook   = 20 * time.Millisecond  // between two looks for the driver, growing
	soonLook    = 250 * time.Millisecond // while it is awaited
	calmLook    = 5 * time.Second        // while it answers
	greetLimit  = 5 * time.Second        // for it to answer
)

// submit has the engine start the driver, unless an earlier proxy has.
func (p *Proxy) submit(ctx context.Context) error {
	if p.remoteDriver() != nil {
		return nil
	}
	p.tell("the engine is asked")
	if r, ok := p.cfg.Launcher.(cluster.RemoteEngine); ok {
		p.tell(r.InitialStatus(p.cfg.Request))
	}
	if p.cfg.Request.GetOneRun() && p.cfg.Old != nil && p.cfg.Begin == nil {
		return errors.New("the process that was to submit it died before it had: run it again")
	}
	environment, err := p.giveEnvironment(ctx)
	if err != nil {
		return err
	}
	if p.cfg.Begin != nil {
		if err := p.giveFiles(ctx, p.cfg.Begin); err != nil {
			return err
		}
	}
	whole := proto.CloneOf(p.cfg.Request)
	whole.Begin = p.cfg.Begin
	request, err := protojson.Marshal(whole)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	input, err := json.Marshal(state.DriverInput{Request: request, Environment: environment, CertPEM: string(p.cfg.Authority.CertPEM), KeyPEM: string(p.cfg.Authority.KeyPEM)})
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// What is under way is awaited: nobody would know of an application that is not heard of.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitLimit)
	defer cancel()
	hosted, err := p.cfg.Launcher.Submit(ctx, cluster.Request{Cluster: p.cfg.Name, Identity: p.cfg.Authority.ID(), Executors: cluster.ExecutorRequests(p.cfg.Request.GetRoles()), Reserve: p.cfg.Request, Program: p.cfg.Program, StateDir: p.cfg.StateDir}, input)
	if err != nil {
		return err
	}
	// Saved before a client hears of it, which may then be all that is left of this process.
	if err := p.cfg.Save(hosted.ID(), hosted.Saved()); err != nil {
		return errors.Join(fmt.Errorf("%s is given up: %w", hosted.ID(), err), endUnheard(ctx, hosted))
	}
	p.mu.Lock()
	p.remote = hosted
	p.mu.Unlock()
	p.record("")
	p.wake()
	return nil
}

// endUnheard ends a driver of which nobody has heard, nor will.
func endUnheard(ctx context.Context, hosted cluster.RemoteDriver) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	return errors.Join(hosted.Kill(ctx), hosted.Close())
}

// Save keeps what the next proxy needs.
func (p *Proxy) Save() error {
	hosted := p.remoteDriver()
	if hosted == nil {
		return p.cfg.Save("", nil)
	}
	p.record("")
	return p.cfg.Save(hosted.ID(), hosted.Saved())
}

func (p *Proxy) remoteDriver() cluster.RemoteDriver {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remote
}

// follow keeps the connection to the driver, until the engine has ended it for good.
func (p *Proxy) follow(ctx context.Context) error {
	pause := firstLook
	for {
		address, waits, err := p.remoteDriver().Endpoint(ctx)
		switch {
		case errors.Is(err, cluster.ErrEnded):
			return err
		case err != nil:
			p.tell(err.Error()) // the driver may answer none the less
		case address == "" && p.answers(): // the engine was restarted, and has not heard of it yet
		case address == "":
			p.lose(waits)
		default:
			p.greet(ctx, address)
		}
		if p.connected() {
			pause = calmLook
		} else {
			pause = min(pause*3/2, soonLook)
			if limit := p.limit(); limit > 0 && time.Since(p.began) > limit {
				return fmt.Errorf("%w after %s: %s", errLate, limit, p.why())
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.poke:
			pause = firstLook
		case <-time.After(pause):
		}
	}
}

// errLate says that the engine did not start the driver within the reservation's time.
var errLate = errors.New("not reserved")

// limit is the reservation's, until a driver has answered, which keeps it from then on.
func (p *Proxy) limit() time.Duration {
	if p.known() {
		return 0
	}
	return time.Duration(p.cfg.Request.GetTimeoutMillis()) * time.Millisecond
}

// greet connects to the driver at an address, unless that is so.
func (p *Proxy) greet(ctx context.Context, address string) {
	p.mu.Lock()
	same := p.conn != nil && p.address == address
	p.mu.Unlock()
	if same {
		return
	}
	p.lose("")
	conn, err := auth.DialHosted(p.cfg.Authority, address)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, greetLimit)
		_, err = clusterpb.NewControlClient(conn).Status(limited, &clusterpb.StatusRequest{})
		cancel()
		if err != nil {
			_ = conn.Close() // the error to tell is the call's
		}
	}
	if err != nil {
		here, _ := os.Hostname() // "" is as good
		p.tell(fmt.Sprintf("the cluster's driver runs on a node, but %s cannot talk to it at %s: %s; without --managed the nodes dial this machine instead",
			here, address, status.Convert(err).Message()))
		return
	}
	p.mu.Lock()
	p.conn, p.address, p.waits = conn, address, ""
	p.mu.Unlock()
	p.wake()
}

// close ends TensorBoard and the connections.
func (p *Proxy) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	err := p.boards.close(ctx)
	p.lose("")
	if h := p.remoteDriver(); h != nil {
		err = errors.Join(err, h.Close())
	}
	return err
}

// record keeps what is to be known of the cluster after its end; how is how its application
// ended, "" while it lives.
func (p *Proxy) record(how string) {
	if hosted := p.remoteDriver(); hosted != nil {
		p.cfg.Record(hosted.ID(), how)
	}
}

package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/coordinator"
	"github.com/tfcluster/tfcluster/cluster/ship"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// front is the driver's process of a cluster whose driver the engine runs: it has that
// one started, finds it wherever the engine starts it again, and hands it what clients
// on this host ask. The cluster does not need it: one that dies is followed by another,
// which finds the cluster by the saved state.
type front struct {
	*driver
	boards boards
	host   cluster.Host
	depot  *ship.Depot // of what is given on this host
	execs  []cluster.ExecutorRequest
	poke   chan struct{} // capacity 1: the driver may be elsewhere
	done   chan struct{} // closed when the cluster is over
	end    func()        // has the cluster ended by force
	began  time.Time

	mu      sync.Mutex
	hosted  cluster.Hosted   // guarded by mu: nil until it is submitted
	conn    *grpc.ClientConn // guarded by mu: nil while no driver answers
	address string           // guarded by mu: of conn
	waits   string           // guarded by mu: for what, while no driver answers
	changed chan struct{}    // guarded by mu: closed at each change, and another made
	over    error            // guarded by mu: why the cluster is over
	wanted  bool             // guarded by mu: a client asked for the end
}

// front serves clients until the cluster is over. say tells whoever started it that it
// listens.
func (d *driver) front(ctx context.Context, word io.WriteCloser) error {
	host, ok := d.opt.Backends[d.req.GetBackend()].(cluster.Host)
	err := error(nil)
	if !ok {
		err = fmt.Errorf("--managed is for engines that can run a cluster's driver, such as yarn: %s cannot", d.req.GetBackend())
	}
	f := &front{
		driver: d, host: host, execs: cluster.ExecutorRequests(d.req.GetRoles()), poke: make(chan struct{}, 1), done: make(chan struct{}),
		began: time.Now(), changed: make(chan struct{}), depot: coordinator.NewDepot(d.stateDir),
	}
	defer f.depot.Close()
	if err == nil && d.old != nil && len(d.old.Saved) > 0 && string(d.old.Saved) != "null" {
		f.hosted, err = host.Find(d.req, d.old.Saved)
	}
	if err == nil {
		err = d.listenClients()
	}
	if err == nil {
		err = f.saveFront()
	}
	if err != nil {
		return errors.Join(err, say(word, "", err), d.forget())
	}
	if err := say(word, d.socket, nil); err != nil {
		return errors.Join(err, d.forget())
	}
	return f.run(ctx)
}

// run finds the driver and serves until the cluster is over, or this process is to end.
// The cluster goes on in that case, unless nobody has heard of it yet.
func (f *front) run(ctx context.Context) error {
	if f.opt.TensorBoard != nil {
		f.boards.board = f.opt.TensorBoard(f.req.GetTensorboardPython(), f.stateDir, filepath.Dir(f.socket), f.name)
	}
	clients := grpc.NewServer(grpc.UnknownServiceHandler(f.handle), grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(maxInt), grpc.MaxSendMsgSize(maxInt))
	var g errgroup.Group
	following, stop := context.WithCancel(ctx)
	defer stop()
	f.end = stop
	g.Go(func() error { return serving("clients", clients.Serve(f.clients)) })
	err := f.submit(following)
	if err == nil {
		err = f.follow(following)
	}
	hosted := f.isHosted()
	alone := hosted != nil && f.begin != nil // its run needs nobody here, whether or not its driver has answered yet
	if ctx.Err() != nil && (alone || f.known()) && !f.asked() && !errors.Is(err, cluster.ErrEnded) {
		graceful(clients)
		return errors.Join(g.Wait(), f.close())
	}
	var ended error
	if hosted != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		ended = hosted.End(ending)
		cancel()
	}
	f.recordFront(f.ending(err))
	f.tellOver(err)
	if !f.asked() { // whoever waits for the reservation, or calls next, reads why
		select {
		case <-time.After(lastWords):
		case <-ctx.Done():
		}
	}
	graceful(clients)
	if f.asked() {
		err = nil
	}
	return errors.Join(err, ended, g.Wait(), f.close(), (&state.State{Name: f.name, Socket: f.socket}).Forget())
}

// ending is how the cluster's lease ended, in a few words.
func (f *front) ending(err error) string {
	if f.asked() || err == nil || !errors.Is(err, cluster.ErrEnded) {
		return "ended"
	}
	words := strings.TrimPrefix(err.Error(), cluster.ErrEnded.Error()+": ")
	return strings.TrimPrefix(words, f.isHosted().ID()+" is ")
}

// Times of the front's.
const (
	submitLimit = time.Minute            // to have the engine start the driver
	endLimit    = 30 * time.Second       // to end the cluster
	lastWords   = 2 * time.Second        // for clients to hear why a cluster is over
	firstLook   = 20 * time.Millisecond  // between two looks for the driver, growing
	soonLook    = 250 * time.Millisecond // while it is awaited
	calmLook    = 5 * time.Second        // while it answers
	greetLimit  = 5 * time.Second        // for it to answer
)

// submit has the engine start the driver, unless an earlier front has.
func (f *front) submit(ctx context.Context) error {
	if f.isHosted() != nil {
		return nil
	}
	f.tell("the engine is asked")
	if a, ok := f.host.(cluster.Announcer); ok {
		f.tell(a.Announce(f.req))
	}
	if f.req.GetOneRun() && f.old != nil && f.begin == nil {
		return errors.New("the process that was to submit it died before it had: run it again")
	}
	environment, err := f.giveEnvironment(ctx)
	if err != nil {
		return err
	}
	if f.begin != nil {
		if err := f.giveFiles(ctx, f.begin); err != nil {
			return err
		}
	}
	whole := proto.CloneOf(f.req)
	whole.Begin = f.begin
	request, err := protojson.Marshal(whole)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	input, err := json.Marshal(state.DriverInput{Request: request, Environment: environment, CertPEM: string(f.authority.CertPEM), KeyPEM: string(f.authority.KeyPEM)})
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// What is under way is awaited: nobody would know of an application that is not heard of.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitLimit)
	defer cancel()
	hosted, err := f.host.Submit(ctx, cluster.Request{Cluster: f.name, Identity: f.authority.ID(), Executors: f.execs, Reserve: f.req, Program: f.opt.Program, StateDir: f.stateDir}, input)
	if err != nil {
		return err
	}
	// Saved before a client hears of it, which may then be all that is left of this process.
	if err := f.save(hosted.ID(), hosted.Saved(), f.lastRun, false); err != nil {
		return errors.Join(fmt.Errorf("%s is given up: %w", hosted.ID(), err), endUnheard(ctx, hosted))
	}
	f.mu.Lock()
	f.hosted = hosted
	f.mu.Unlock()
	f.recordFront("")
	f.wake()
	return nil
}

// endUnheard ends a driver of which nobody has heard, nor will.
func endUnheard(ctx context.Context, hosted cluster.Hosted) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	return errors.Join(hosted.End(ctx), hosted.Close())
}

// saveFront writes what the next front needs.
func (f *front) saveFront() error {
	hosted := f.isHosted()
	if hosted == nil {
		return f.save("", nil, f.lastRun, false)
	}
	f.recordFront("")
	return f.save(hosted.ID(), hosted.Saved(), f.lastRun, false)
}

func (f *front) isHosted() cluster.Hosted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hosted
}

// follow keeps the connection to the driver, until the engine has ended it for good.
func (f *front) follow(ctx context.Context) error {
	pause := firstLook
	for {
		address, waits, err := f.isHosted().Where(ctx)
		switch {
		case errors.Is(err, cluster.ErrEnded):
			return err
		case err != nil:
			f.tell(err.Error()) // the driver may answer none the less
		case address == "" && f.answers(): // the engine was restarted, and has not heard of it yet
		case address == "":
			f.lose(waits)
		default:
			f.greet(ctx, address)
		}
		if f.connected() {
			pause = calmLook
		} else {
			pause = min(pause*3/2, soonLook)
			if limit := f.limit(); limit > 0 && time.Since(f.began) > limit {
				return fmt.Errorf("%w after %s: %s", errLate, limit, f.why())
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.poke:
			pause = firstLook
		case <-time.After(pause):
		}
	}
}

// errLate says that the engine did not start the driver within the reservation's time.
var errLate = errors.New("not reserved")

// limit is the reservation's, until a driver has answered, which keeps it from then on.
func (f *front) limit() time.Duration {
	if f.known() {
		return 0
	}
	return time.Duration(f.req.GetTimeoutMillis()) * time.Millisecond
}

// greet connects to the driver at an address, unless that is so.
func (f *front) greet(ctx context.Context, address string) {
	f.mu.Lock()
	same := f.conn != nil && f.address == address
	f.mu.Unlock()
	if same {
		return
	}
	f.lose("")
	conn, err := auth.DialHosted(f.authority, address)
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
		f.tell(fmt.Sprintf("the cluster's driver runs on a node, but %s cannot talk to it at %s: %s; without --managed the nodes dial this machine instead",
			here, address, status.Convert(err).Message()))
		return
	}
	f.mu.Lock()
	f.conn, f.address, f.waits = conn, address, ""
	f.mu.Unlock()
	f.wake()
}

// lose gives up the connection: the driver is not where it was.
func (f *front) lose(waits string) {
	f.mu.Lock()
	conn := f.conn
	f.conn = nil
	if waits != "" {
		f.waits = waits
	}
	f.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it is of no use
	}
	f.wake()
}

func (f *front) tell(waits string) {
	f.mu.Lock()
	f.waits = waits
	f.mu.Unlock()
	f.wake()
}

// tellOver has clients hear that the cluster is over, and why.
func (f *front) tellOver(why error) {
	f.mu.Lock()
	f.over = why
	f.mu.Unlock()
	close(f.done)
	f.lose("")
}

func (f *front) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *front) connected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conn != nil
}

// answers is whether the connection to the driver stands.
func (f *front) answers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conn != nil && f.conn.GetState() == connectivity.Ready
}

func (f *front) why() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waits
}

// known is whether the cluster has been there for a client.
func (f *front) known() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.old != nil || f.address != ""
}

// asked is whether a client wanted the end.
func (f *front) asked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted
}

// close ends TensorBoard and the connections.
func (f *front) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	err := f.boards.close(ctx)
	f.lose("")
	if h := f.isHosted(); h != nil {
		err = errors.Join(err, h.Close())
	}
	return err
}

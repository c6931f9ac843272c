package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/feed/intake"
)

// relayName is the relay's name among the holders. No task has it: their names have a number.
const relayName = "the driver's relay"

// attendTimeout is the time in which the relay attends.
const attendTimeout = 10 * time.Second

// relay is a holder in the driver's process, for producers on the driver's host if no task's holder is there.
// It has no program: everything that it receives is moved to tasks. It attends like an agent's holder, over a
// connection inside of this process.
type relay struct {
	intake *intake.Intake
	conn   *grpc.ClientConn
	server *grpc.Server
	served sync.WaitGroup
}

// RelayIn lets feeds use a relay, whose socket is in a private folder of this host. It is called before the first
// feed.
func (d *Dispatch) RelayIn(folder string) { d.relayFolder = folder }

// addRelay gives a feed a relay if it needs one.
func (d *Dispatch) addRelay(ctx context.Context, s *session) error {
	if d.relayFolder == "" || !s.isRemote() {
		return nil
	}
	r, err := d.openRelay(s)
	if err != nil {
		return fmt.Errorf("open a relay for the feed: %w", err)
	}
	s.relay = r
	ctx, cancel := context.WithTimeout(ctx, attendTimeout)
	defer cancel()
	h, err := d.await(ctx, s.relayKey())
	if err != nil {
		return fmt.Errorf("open a relay for the feed: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.holders[relayName] = h
	s.feed.AddRelay(relayName)
	h.order(s.beginOrder())
	return nil
}

// isRemote is whether a holder's socket is not on this host.
func (s *session) isRemote() bool {
	for _, h := range s.holders {
		if _, err := os.Stat(h.hello.GetSocket()); err != nil {
			return true
		}
	}
	return false
}

// relayKey identifies the relay of a feed among all holders.
func (s *session) relayKey() holderKey {
	return holderKey{s.run.ID, Task{relayName, int32(s.id)}}
}

func (d *Dispatch) openRelay(s *session) (*relay, error) {
	ln := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	conn, err := grpc.NewClient("passthrough:relay", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(ln.dial))
	if err != nil {
		return nil, err
	}
	r := &relay{conn: conn, server: grpc.NewServer()}
	clusterpb.RegisterFeedsServer(r.server, inProcess{d})
	r.served.Go(func() { _ = r.server.Serve(ln) }) // until close
	name := make([]byte, 8)
	_, _ = rand.Read(name) // never fails
	key := s.relayKey()
	r.intake, err = intake.Open(context.Background(), intake.Config{
		Run: key.run, Attempt: key.task.Attempt, Task: relayName, Client: clusterpb.NewFeedsClient(conn), Log: d.log,
		Socket: filepath.Join(d.relayFolder, "feed-"+hex.EncodeToString(name)+".sock"),
	})
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// close ends the relay and gives its memory back.
func (r *relay) close() {
	if r.intake != nil {
		r.intake.Close()
	}
	_ = r.conn.Close()
	r.server.Stop()
	r.served.Wait()
}

// inProcess is the Feeds service for the relay. Agents may not take its name.
type inProcess struct{ *Dispatch }

// Attend implements the Feeds service.
func (p inProcess) Attend(stream grpc.BidiStreamingServer[clusterpb.HolderMessage, clusterpb.HolderOrder]) error {
	return p.attend(stream, func(task string) bool { return task == relayName })
}

// Attend implements the Feeds service.
func (d *Dispatch) Attend(stream grpc.BidiStreamingServer[clusterpb.HolderMessage, clusterpb.HolderOrder]) error {
	return d.attend(stream, func(task string) bool { return task != "" && task != relayName })
}

// hello receives a holder's first message.
func hello(stream grpc.BidiStreamingServer[clusterpb.HolderMessage, clusterpb.HolderOrder], valid func(task string) bool) (*clusterpb.HolderHello, error) {
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if !valid(first.GetHello().GetTask()) {
		return nil, status.Error(codes.InvalidArgument, "a holder says hello first, with the name of its task")
	}
	return first.GetHello(), nil
}

// pipeListener is a listener for connections inside of this process.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

var errPipeClosed = errors.New("the relay has ended")

func (l *pipeListener) dial(ctx context.Context, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, errPipeClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, errPipeClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "relay", Net: "pipe"} }

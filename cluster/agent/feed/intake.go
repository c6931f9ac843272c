package feed

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/unixsock"
	"github.com/tfcluster/tfcluster/rdma/memory"
)

// slots is the number of batches for which a holder has room.
const slots = 8

// DefaultMemory is the size of a task's segment in bytes.
const DefaultMemory = 64 << 20

// Config has the settings of a holder.
type Config struct {
	Run, Attempt int32
	Task         string // "worker:1"
	Host         string // name of the host for users
	Socket       string // path of the socket, in a private folder
	Memory       int64  // bytes of the segment; 0: DefaultMemory
	Client       clusterpb.FeedsClient
	Log          *slog.Logger
}

// Intake is the holder of one task. Open makes it; it ends with Close.
type Intake struct {
	cfg    Config
	key    string // the key of the task's program
	seg    *memory.Segment
	ln     net.Listener
	cancel context.CancelFunc
	work   sync.WaitGroup // connections and streams
	driver driver

	mu sync.Mutex
	// guarded by mu
	room
	sources
	consumer *consumer
	answerer *answerer
	feed     *reading
	ending
}

// ending is the state of a holder's end.
type ending struct {
	closed   bool   // the holder takes no more values
	ended    string // the reason, after closed is set
	departed bool   // the program has exited, or has closed its connection
}

// sources has the connected producers.
type sources struct {
	producers map[int64]*producer
	last      int64 // number of the last producer
}

// room has the state of a holder's slots.
type room struct {
	slots     []slot
	freed     *sync.Cond // signals that a slot is free, a feed has begun, or the holder is closed
	receiving bool       // receive waits for a slot
}

// Open creates the segment and the socket and begins to attend the driver. The holder ends with ctx or Close.
func Open(ctx context.Context, cfg Config) (*Intake, error) {
	if cfg.Memory == 0 {
		cfg.Memory = DefaultMemory
	}
	seg, err := memory.New("tfcluster-feed", memory.Class{Slots: slots, Size: cfg.Memory / slots})
	if err != nil {
		return nil, fmt.Errorf("make the memory of the feed of %s (reserve --feed-memory sets its size): %w", cfg.Task, err)
	}
	unixsock.Sweep(filepath.Join(filepath.Dir(cfg.Socket), "feed-*.sock")) // left by agents that were killed
	ln, err := unixsock.Listen(cfg.Socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the socket of the feed of %s: %w", cfg.Task, err), seg.Close())
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	ctx, cancel := context.WithCancel(ctx)
	i := &Intake{
		cfg: cfg, key: hex.EncodeToString(random), seg: seg, ln: ln, cancel: cancel,
		driver: driver{wake: make(chan struct{}, 1)}, room: room{slots: make([]slot, slots)}, sources: sources{producers: map[int64]*producer{}},
	}
	i.freed = sync.NewCond(&i.mu)
	i.work.Go(func() { i.accept(ctx) })
	i.work.Go(func() { i.attend(ctx) })
	return i, nil
}

// Socket returns the path of the socket and the key with which the task's program connects.
func (i *Intake) Socket() (path, key string) { return i.cfg.Socket, i.key }

// freeUnused frees the memory if the holder has lost its driver and its program has ended: an order to end the run
// may never come. Caller holds mu.
func (i *Intake) freeUnused() {
	if i.closed && i.departed {
		_ = i.ln.Close()  // Close closes both again
		_ = i.seg.Close() // processes that have the memory keep it
	}
}

// Close ends the holder, informs producers and the program, and frees the memory.
func (i *Intake) Close() {
	i.end("the task has ended", "")
	i.cancel()
	_ = i.ln.Close()
	i.work.Wait()
	_ = i.seg.Close()
}

// end ends the feed and all connections. It sends reason to the program, and the other reason to the producers.
func (i *Intake) end(reason, producers string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		i.closed, i.ended = true, reason
	}
	defer i.freeUnused()
	i.freed.Broadcast()
	for _, p := range i.producers {
		p.stop(producers)
	}
	if i.consumer != nil {
		i.consumer.peer.send(message{Op: "over", Reason: reason}, nil)
		i.consumer.peer.hangUp()
	}
	if i.answerer != nil {
		i.answerer.peer.send(message{Op: "stop", Reason: reason}, nil)
		i.answerer.peer.hangUp()
	}
}

// accept serves connections until the holder ends.
func (i *Intake) accept(ctx context.Context) {
	for {
		conn, err := i.ln.Accept()
		if err != nil {
			return // the listener is closed
		}
		i.work.Go(func() { i.serve(ctx, conn.(*net.UnixConn), false) })
	}
}

// helloTimeout is the time that a connection has for its first line.
const helloTimeout = 10 * time.Second

// serve serves one peer. A peer with a carried connection is a producer.
func (i *Intake) serve(ctx context.Context, conn *net.UnixConn, carried bool) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	stop := context.AfterFunc(ctx, func() { // queued messages are still written
		_ = conn.SetReadDeadline(time.Now())
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	})
	defer stop()
	lines := newLineReader(conn)
	first, err := lines.read()
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if ctx.Err() != nil { // the line before has removed the deadline of the end
		return
	}
	p := &peer{conn: conn, wake: make(chan struct{}, 1)}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer p.hangUp()
	writing.Go(p.writeLoop)
	switch {
	case first.Op == "produce":
		i.produce(p, lines, first, carried)
	case carried || !equalKeys(first.Key, i.key):
		p.send(message{Op: "stop", Reason: "this is the feed of another task"}, nil)
	case first.Op == "consume":
		i.consume(p, lines)
	case first.Op == "answer":
		i.answer(p, lines)
	}
}

// equalKeys reports whether two secrets are equal, in constant time.
func equalKeys(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// segmentFile returns the memory for a peer: its sizes and its descriptor.
func (i *Intake) segmentFile() (place, *os.File) {
	return place{Size: i.seg.Layout().Size(), Slots: slots}, i.seg.File()
}

package feed

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
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

// Holder is the memory for records of one task. Open makes it; it ends with Close.
type Holder struct {
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
	feed     *feedState
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
func Open(ctx context.Context, cfg Config) (*Holder, error) {
	cfg.Memory = cmp.Or(cfg.Memory, DefaultMemory)
	seg, err := memory.New("tfcluster-feed", memory.Class{Slots: slots, Size: cfg.Memory / slots})
	if err != nil {
		return nil, fmt.Errorf("make the memory of the feed of %s (reserve --feed-memory sets its size): %w", cfg.Task, err)
	}
	unixsock.Sweep(filepath.Join(filepath.Dir(cfg.Socket), "feed-*.sock")) // left by agents that were killed
	ln, err := unixsock.Listen(cfg.Socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the socket of the feed of %s: %w", cfg.Task, err), seg.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &Holder{
		cfg: cfg, key: rand.Text(), seg: seg, ln: ln, cancel: cancel,
		driver: driver{wake: make(chan struct{}, 1)}, room: room{slots: make([]slot, slots)},
		sources: sources{producers: map[int64]*producer{}},
	}
	h.freed = sync.NewCond(&h.mu)
	h.work.Go(func() { h.accept(ctx) })
	h.work.Go(func() { h.attend(ctx) })
	return h, nil
}

// Socket returns the path of the socket and the key with which the task's program connects.
func (h *Holder) Socket() (path, key string) { return h.cfg.Socket, h.key }

// freeUnused frees the memory if the holder has lost its driver and its program has ended: an order to end the run
// may never come. Caller holds mu.
func (h *Holder) freeUnused() {
	if h.closed && h.departed {
		_ = h.ln.Close()  // Close closes both again
		_ = h.seg.Close() // processes that have the memory keep it
	}
}

// Close ends the holder, informs producers and the program, and frees the memory.
func (h *Holder) Close() {
	h.end("the task has ended", "")
	h.cancel()
	_ = h.ln.Close()
	h.work.Wait()
	_ = h.seg.Close()
}

// end ends the feed and all connections. It sends reason to the program, and the other reason to the producers.
func (h *Holder) end(reason, producers string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed, h.ended = true, reason
	}
	defer h.freeUnused()
	h.freed.Broadcast()
	for _, p := range h.producers {
		p.stop(producers)
	}
	if h.consumer != nil {
		h.consumer.peer.send(message{Op: "over", Reason: reason}, nil)
		h.consumer.peer.hangUp()
	}
	if h.answerer != nil {
		h.answerer.peer.send(message{Op: "stop", Reason: reason}, nil)
		h.answerer.peer.hangUp()
	}
}

// accept serves connections until the holder ends.
func (h *Holder) accept(ctx context.Context) {
	for {
		conn, err := h.ln.Accept()
		if err != nil {
			return // the listener is closed
		}
		h.work.Go(func() { h.serve(ctx, conn.(*net.UnixConn), false) })
	}
}

// helloTimeout is the time that a connection has for its first line.
const helloTimeout = 10 * time.Second

// serve serves one peer. A peer with a carried connection is a producer.
func (h *Holder) serve(ctx context.Context, conn *net.UnixConn, carried bool) {
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
	p := newPeer(conn)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer p.hangUp()
	writing.Go(p.writeLoop)
	switch {
	case first.Op == "produce":
		h.produce(p, lines, first, carried)
	case carried || !equalKeys(first.Key, h.key):
		p.send(message{Op: "stop", Reason: "this is the feed of another task"}, nil)
	case first.Op == "consume":
		h.consume(p, lines)
	case first.Op == "answer":
		h.answer(p, lines)
	}
}

// equalKeys reports whether two secrets are equal, in constant time.
func equalKeys(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// segmentFile returns the memory for a peer: its sizes and its descriptor.
func (h *Holder) segmentFile() (place, *os.File) {
	return place{Size: h.seg.Layout().Size(), Slots: slots}, h.seg.File()
}

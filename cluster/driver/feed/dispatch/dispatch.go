// Package dispatch is the driver's side of feeds. It serves the holders (service Feeds) and the clients that read a
// source (service FeedControl). Package feed makes the decisions.
package dispatch

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Run is the run with the tasks that are fed.
type Run struct {
	ID       int32 // 0: a start is being prepared
	Attempt  int32 // changes as soon as a restart of all tasks is decided
	Entering bool  // not all tasks have entered the program
	Tasks    []Task
	Ended    map[string]bool // tasks that have ended: they do not ask for a feed any more
	Over     string          // why nothing can be fed; "": the run is active
}

// Task is a task that can read a feed: a chief, or a worker. A task in tf.distribute.Server.join() only serves others
// and is none.
type Task struct {
	Name    string // "worker:1"
	Attempt int32
}

// Runs has the run that can be fed, and the route to its feeds.
type Runs interface {
	// FeedableRun returns the active or the last run.
	FeedableRun(ctx context.Context) (Run, error)
	// Note sends a text to all clients that follow the active run.
	Note(ctx context.Context, text string) error
	// Fail fails a run that can no longer be fed.
	Fail(ctx context.Context, run int32, why *clusterpb.Failure) error
	// Route returns how a producer on another host connects to the driver, with a certificate for a feed of this
	// name.
	Route(feed string) (*clusterpb.FeedRoute, error)
}

// Dispatch serves the feeds of one cluster. At most one feed is on at a time.
type Dispatch struct {
	clusterpb.UnimplementedFeedsServer
	clusterpb.UnimplementedFeedControlServer
	runs     Runs
	caller   auth.Caller
	log      *slog.Logger
	patience patience

	mu sync.Mutex
	// guarded by mu
	holders map[holderKey]*holder
	feeds   int64    // number of feeds so far, and of the last one
	on      *session // nil: there is no feed
	changed chan struct{}

	waiting     map[int64]*carried // connections that no holder has accepted yet, by number
	connections int64              // number of the last one
}

// patience has the time limits of a Dispatch. Tests shorten them.
type patience struct {
	ask   time.Duration // for the tasks of a run to call get_data_feed
	cause time.Duration // for a run to end, or for a restart of its tasks, after one of its holders has ended
	last  time.Duration // for the last numbers of the holders of a run that has ended
}

// holderKey identifies a holder by its run and its task of an attempt.
type holderKey struct {
	run  int32
	task Task
}

// New returns a Dispatch without feeds.
func New(runs Runs, caller auth.Caller, log *slog.Logger) *Dispatch {
	return &Dispatch{
		runs: runs, caller: caller, log: log,
		patience: patience{ask: time.Minute, cause: 15 * time.Second, last: time.Second}, holders: map[holderKey]*holder{},
		changed: make(chan struct{}), waiting: map[int64]*carried{},
	}
}

// wake wakes all goroutines that wait for a change. Caller holds mu.
func (d *Dispatch) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// AllWait reports whether every task of a run waits for a feed to begin.
func (d *Dispatch) AllWait(run Run) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	holders, missing := d.holdersOf(run)
	for _, h := range holders {
		if h.over {
			return false
		}
	}
	return d.on == nil && len(holders) > 0 && len(missing) == 0
}

// holdersOf returns the holders of a run's tasks, and the names of the tasks without a holder that may still ask for
// a feed. Caller holds mu.
func (d *Dispatch) holdersOf(run Run) (holders map[string]*holder, missing []string) {
	holders = map[string]*holder{}
	for _, task := range run.Tasks {
		if h := d.holders[holderKey{run.ID, task}]; h != nil {
			holders[task.Name] = h
		} else if !run.Ended[task.Name] {
			missing = append(missing, task.Name)
		}
	}
	return holders, missing
}

// holder is a connected holder. Its fields are guarded by the Dispatch's mu.
type holder struct {
	hello   *clusterpb.HolderHello
	over    bool   // its last feed is over
	mode    string // mode of its feeds: train, evaluate or inference; "": it had no feed
	queue   []*clusterpb.HolderOrder
	wake    chan struct{} // capacity 1
	carries int           // connections of producers on other hosts

	batch  sync.Mutex                // held while a batch is sent to the holder
	pieces chan *clusterpb.FeedPiece // to its Receive stream
	gone   chan struct{}             // closed when the holder has disconnected
}

// order queues an order. Caller holds mu.
func (h *holder) order(o *clusterpb.HolderOrder) {
	h.queue = append(h.queue, o)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Attend implements the Feeds service. It serves a holder until its stream ends.
func (d *Dispatch) Attend(stream grpc.BidiStreamingServer[clusterpb.HolderMessage, clusterpb.HolderOrder]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello.GetTask() == "" {
		return status.Error(codes.InvalidArgument, "a holder says hello first, with the name of its task")
	}
	if _, err := d.caller(stream.Context(), hello.GetTask()); err != nil {
		return err
	}
	h := &holder{
		hello: hello, wake: make(chan struct{}, 1), pieces: make(chan *clusterpb.FeedPiece), gone: make(chan struct{}),
	}
	key := holderKey{hello.GetRun(), Task{hello.GetTask(), hello.GetAttempt()}}
	d.mu.Lock()
	if d.holders[key] != nil {
		d.mu.Unlock()
		return status.Error(codes.AlreadyExists, errtext.Fault("%s has opened its feed already", hello.GetTask()).Error())
	}
	d.holders[key] = h
	d.wake()
	d.mu.Unlock()
	defer d.leave(key, h)
	received := make(chan error, 1)
	go func() { // ends with the stream, which ends when this handler returns
		for {
			m, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			d.take(h, m)
		}
	}()
	for {
		d.mu.Lock()
		queue := h.queue
		h.queue = nil
		d.mu.Unlock()
		for _, o := range queue {
			if err := stream.Send(o); err != nil {
				return err
			}
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-h.wake:
		case err := <-received:
			d.log.Debug("a holder attends no more", "task", hello.GetTask(), "err", err)
			return nil
		}
	}
}

// leave removes a holder that has disconnected.
func (d *Dispatch) leave(key holderKey, h *holder) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.holders, key)
	close(h.gone)
	d.wake()
	if s := d.on; s != nil && s.holders[key.task.Name] == h {
		s.gone(key.task.Name)
	}
}

// take passes a holder's message to the present feed.
func (d *Dispatch) take(h *holder, m *clusterpb.HolderMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.on; s != nil && s.holders[h.hello.GetTask()] == h {
		s.take(h.hello.GetTask(), m)
		d.wake()
	}
}

// Send implements the Feeds service. It passes records to another holder as they come.
func (d *Dispatch) Send(stream grpc.ClientStreamingServer[clusterpb.FeedPiece, clusterpb.FeedSent]) error {
	if err := d.takesPart(stream.Context()); err != nil {
		return err
	}
	for {
		piece, err := stream.Recv()
		if err != nil {
			// After an error this reply is not received.
			return stream.SendAndClose(&clusterpb.FeedSent{})
		}
		d.mu.Lock()
		var to *holder
		if d.on != nil && d.on.id == piece.GetFeed() {
			to = d.on.holders[piece.GetTo()]
		}
		d.mu.Unlock()
		if to == nil {
			return status.Errorf(codes.NotFound, "feed %d is over, or %s takes no part in it", piece.GetFeed(), piece.GetTo())
		}
		if err := to.passBatch(stream, piece); err != nil {
			return err
		}
	}
}

// takesPart returns an error unless the caller runs a task that is fed.
func (d *Dispatch) takesPart(ctx context.Context) error {
	d.mu.Lock()
	var tasks []string
	if d.on != nil {
		tasks = slices.Collect(maps.Keys(d.on.holders))
	}
	d.mu.Unlock()
	err := status.Error(codes.NotFound, "the feed is over")
	for _, task := range tasks {
		if _, err = d.caller(ctx, task); err == nil {
			return nil
		}
	}
	return err
}

// passBatch passes a batch to the holder, from its first piece to its last.
func (h *holder) passBatch(stream grpc.ClientStreamingServer[clusterpb.FeedPiece, clusterpb.FeedSent],
	piece *clusterpb.FeedPiece,
) error {
	h.batch.Lock()
	defer h.batch.Unlock()
	for {
		select {
		case h.pieces <- piece:
		case <-h.gone:
			return status.Errorf(codes.Unavailable, "%s has ended", h.hello.GetTask())
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		if piece.GetEnd() > 0 {
			return nil
		}
		var err error
		if piece, err = stream.Recv(); errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "a batch has no end")
		} else if err != nil {
			return err
		}
	}
}

// Receive implements the Feeds service. It sends a holder the records that other holders send to it.
func (d *Dispatch) Receive(r *clusterpb.FeedReceiver, stream grpc.ServerStreamingServer[clusterpb.FeedPiece]) error {
	if _, err := d.caller(stream.Context(), r.GetTask()); err != nil {
		return err
	}
	key := holderKey{r.GetRun(), Task{r.GetTask(), r.GetAttempt()}}
	h, err := d.await(stream.Context(), key)
	if err != nil {
		return err
	}
	for {
		select {
		case p := <-h.pieces:
			if err := stream.Send(p); err != nil {
				return err
			}
		case <-h.gone:
			return nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// await waits until a holder has opened its Attend stream, and returns the holder.
func (d *Dispatch) await(ctx context.Context, key holderKey) (*holder, error) {
	for {
		d.mu.Lock()
		h, changed := d.holders[key], d.changed
		d.mu.Unlock()
		if h != nil {
			return h, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

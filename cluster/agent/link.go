package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/agent/tasklog"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Pauses between two attempts to join, growing.
const (
	rejoinFirst = 50 * time.Millisecond
	rejoinLast  = time.Second
)

// handler handles the events of a link.
type handler interface {
	// greeting calls open with the first messages of a new stream: Hello, then all events that
	// the coordinator may have missed. No other message is sent between them.
	greeting(open func(first []*clusterpb.AgentMessage))
	// handle executes one instruction without blocking.
	handle(ctx context.Context, i *clusterpb.Instruction) error
	// connected and disconnected are called after a Welcome and after a stream's end.
	connected()
	disconnected(err error)
}

// link keeps one Join stream to the coordinator at a time.
type link struct {
	client  clusterpb.CoordinatorClient
	feeds   clusterpb.FeedsClient  // of the connection that outlives cuts
	groups  clusterpb.GroupsClient // of the same as feeds
	handler handler
	logs    *tasklog.Shipper
	log     *slog.Logger

	wake    chan struct{}         // capacity 1
	resolve func(context.Context) // updates the coordinator's address; may be nil

	mu sync.Mutex
	// guarded by mu
	open  bool
	queue []*clusterpb.AgentMessage
}

// errReleased ends the link: the coordinator has released this agent.
var errReleased = errors.New("the driver has released this agent")

// send queues a message. Without a stream it is dropped: the next greeting repeats what
// matters.
func (l *link) send(m *clusterpb.AgentMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return
	}
	l.queue = append(l.queue, m)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run opens one stream after another until ctx ends or the agent is released.
func (l *link) run(ctx context.Context) error {
	for pause := rejoinFirst; ; pause = min(2*pause, rejoinLast) {
		began := time.Now()
		err := l.session(ctx)
		if errors.Is(err, errReleased) || ctx.Err() != nil {
			return err
		}
		l.handler.disconnected(err)
		if l.resolve != nil {
			l.resolve(ctx)
		}
		if time.Since(began) > rejoinLast {
			pause = rejoinFirst
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// session runs one stream from Hello to its end.
func (l *link) session(root context.Context) error {
	ctx, cancel := context.WithCancel(root)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	stream, err := l.client.Join(ctx)
	if err != nil {
		return clusterpb.Plain(err)
	}
	l.handler.greeting(func(first []*clusterpb.AgentMessage) {
		l.mu.Lock()
		l.open, l.queue = true, first
		l.mu.Unlock()
	})
	defer func() {
		l.mu.Lock()
		l.open, l.queue = false, nil
		l.mu.Unlock()
	}()
	parts.Go(func() { l.sendLoop(stream) })
	welcomed := false
	for {
		i, err := stream.Recv()
		if err != nil {
			return clusterpb.Plain(err)
		}
		if !welcomed && i.GetWelcome().GetRefused() == "" && i.GetWelcome() != nil {
			welcomed = true
			l.handler.connected()
			parts.Go(func() { l.logLoop(ctx) })
		}
		if err := l.handler.handle(root, i); err != nil {
			return err
		}
	}
}

func (l *link) sendLoop(stream grpc.BidiStreamingClient[clusterpb.AgentMessage, clusterpb.Instruction]) {
	for {
		l.mu.Lock()
		queue := l.queue
		l.queue = nil
		l.mu.Unlock()
		for _, m := range queue {
			if stream.Send(m) != nil {
				return // Recv returns the reason
			}
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-stream.Context().Done():
			return
		case <-l.wake:
		}
	}
}

// logLoop sends lines until the session ends.
func (l *link) logLoop(ctx context.Context) {
	for {
		err := l.logs.Ship(ctx, l.client)
		if ctx.Err() != nil {
			return
		}
		l.log.Warn("the stream of logs to the driver broke; opening it is tried until the driver is back or the agent ends",
			"error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(rejoinLast / 4):
		}
	}
}

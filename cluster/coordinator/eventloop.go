package coordinator

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// eventLoop is the goroutine in which everything happens that changes the cluster, and what
// it sets going. Others hand it functions by call and post; timers is its own.
type eventLoop struct {
	calls chan func() // run by the loop, in order
	done  chan struct{}
	// working is cancelled at the cluster's end; what the loop sets going keeps to it. Run
	// sets it before anything else.
	working context.Context
	work    sync.WaitGroup         // what the loop set going; Run waits for it
	timers  map[string]*time.Timer // by name
}

func newEventLoop() eventLoop {
	return eventLoop{calls: make(chan func(), 256), done: make(chan struct{}), timers: map[string]*time.Timer{}}
}

// call runs f in the loop and waits for it; ErrOver when the cluster is over. Once f
// is in the queue it is waited for whatever becomes of ctx: a caller that gave up
// could not undo what f did.
func (l *eventLoop) call(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(ran) }:
	case <-l.done:
		return ErrOver
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-ran:
		return nil
	case <-l.done:
		return ErrOver
	}
}

// post runs f in the loop without waiting.
func (l *eventLoop) post(f func()) {
	select {
	case l.calls <- f:
	case <-l.done:
	}
}

// after calls f in the loop after a while; the timer replaces one of the same name,
// and none is left when the while is 0.
func (l *eventLoop) after(name string, d time.Duration, f func()) {
	if t := l.timers[name]; t != nil {
		t.Stop()
		delete(l.timers, name)
	}
	if d <= 0 {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		l.post(func() {
			if l.timers[name] == t { // not replaced while it fired
				delete(l.timers, name)
				f()
			}
		})
	})
	l.timers[name] = t
}

func (l *eventLoop) stopTimers() {
	for _, t := range l.timers {
		t.Stop()
	}
}

// rest waits for a while.
func (l *eventLoop) rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return status.Error(codes.Unavailable, ErrOver.Error())
	}
}

// pause waits until something to show has changed; durations move once a second.
func (l *eventLoop) pause(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return status.Error(codes.Unavailable, ErrOver.Error())
	}
}

package coordinator

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// eventLoop runs all changes of the cluster's state in one goroutine. Others pass it functions
// by call and post; timers is owned by it.
type eventLoop struct {
	calls chan func() // run by the loop, in order
	done  chan struct{}
	// working is cancelled at the cluster's end and bounds all work that the loop starts. Run
	// sets it first.
	working context.Context
	work    sync.WaitGroup         // goroutines of the loop
	timers  map[string]*time.Timer // by name
}

// call runs f in the loop and waits for it; it returns ErrOver after the cluster's end. Once f
// is queued, ctx no longer cancels the call: the caller could not undo f.
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
	}
	select { // the loop has ended: f has run by now, or never runs
	case <-ran:
		return nil
	default:
		return ErrOver
	}
}

// ask runs f in the loop for a call of a client, and returns its answer; after the cluster's end the
// status is Unavailable.
func ask[T any](ctx context.Context, l *eventLoop, f func() (T, error)) (answer T, err error) {
	if gone := l.call(ctx, func() { answer, err = f() }); gone != nil {
		return *new(T), status.Error(codes.Unavailable, gone.Error())
	}
	return answer, err
}

// post runs f in the loop without waiting for it.
func (l *eventLoop) post(f func()) {
	select {
	case l.calls <- f:
	case <-l.done:
	}
}

// after calls f in the loop after d. It replaces the timer of the same name; d = 0 only stops
// that.
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
			if l.timers[name] == t { // not replaced since it fired
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

// sleep waits for d, ctx or the cluster's end.
func (l *eventLoop) sleep(ctx context.Context, d time.Duration) error { return l.await(ctx, nil, d) }

// await waits for a change, at most for d.
func (l *eventLoop) await(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	select {
	case <-changed:
		return nil
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return status.Error(codes.Unavailable, ErrOver.Error())
	}
}

// awaitChange waits for a change, at most a second, because durations change all the time.
func (l *eventLoop) awaitChange(ctx context.Context, changed <-chan struct{}) error {
	return l.await(ctx, changed, time.Second)
}

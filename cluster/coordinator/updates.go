package coordinator

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// updates sends a client what look makes of an update each time something to show
// may have changed, up to the one that look calls the last. look is called in the
// loop. settle, if there is one, may wait for what the last update lacks.
func updates[U any](c *Coordinator, stream grpc.ServerStreamingServer[U], look func(*U) (last bool), settle func(context.Context, *U)) error {
	ctx := stream.Context()
	changed, leave := c.watch()
	defer leave()
	for {
		began := time.Now()
		u := new(U)
		var last bool
		if err := c.call(ctx, func() { last = look(u) }); err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		if last && settle != nil {
			settle(ctx, u)
		}
		if err := stream.Send(u); err != nil || last {
			return err
		}
		if err := c.rest(ctx, min(updatesShare*time.Since(began), updatesRest)); err != nil {
			return err
		}
		if err := c.pause(ctx, changed); err != nil {
			return err
		}
	}
}

// The pause behind an update is at least updatesShare times as long as the update took, up
// to updatesRest: of thousands of executors one takes many milliseconds, and something
// changes all the time.
const (
	updatesShare = 4
	updatesRest  = 100 * time.Millisecond
)

// rest waits for a while.
func (c *Coordinator) rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return status.Error(codes.Unavailable, ErrOver.Error())
	}
}

// pause waits until something to show has changed; durations move once a second.
func (c *Coordinator) pause(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return status.Error(codes.Unavailable, ErrOver.Error())
	}
}

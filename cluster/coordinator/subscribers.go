package coordinator

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// subscribers are the clients' streams that are notified of changes and notes. Any goroutine
// may use it.
type subscribers struct {
	mu        sync.Mutex
	followers map[*follower]struct{}
	watchers  map[chan struct{}]struct{} // notified of changes
	waiting   []chan struct{}            // closed when the last stream has ended
}

func newSubscribers() subscribers {
	return subscribers{followers: map[*follower]struct{}{}, watchers: map[chan struct{}]struct{}{}}
}

// watch returns a channel that receives a token after each change.
func (s *subscribers) watch() (changed <-chan struct{}, leave func()) {
	ch := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, ch)
		s.closeWaiting()
	}
}

func (s *subscribers) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// drained returns a channel that is closed when no stream is left.
func (s *subscribers) drained() <-chan struct{} {
	ch := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.followers)+len(s.watchers) == 0 {
		close(ch)
	} else {
		s.waiting = append(s.waiting, ch)
	}
	return ch
}

// closeWaiting closes the channels of drained if no stream is left. The caller holds mu.
func (s *subscribers) closeWaiting() {
	if len(s.followers)+len(s.watchers) > 0 {
		return
	}
	for _, ch := range s.waiting {
		close(ch)
	}
	s.waiting = nil
}

// hasFollowers returns whether a client follows a run.
func (s *subscribers) hasFollowers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.followers) > 0
}

// follow passes a follower all new notes.
func (s *subscribers) follow(f *follower) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[f] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.followers, f)
		s.closeWaiting()
	}
}

// note passes a note to every follower.
func (s *subscribers) note(n *clusterpb.Note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		f.note(n)
	}
}

// updates sends updates that look fills, in the loop, after each change until look returns
// true. settle, unless nil, may complete the last update outside the loop.
func updates[U any](c *Coordinator, stream grpc.ServerStreamingServer[U], look func(*U) (last bool), settle func(context.Context, *U)) error {
	ctx := stream.Context()
	changed, leave := c.subs.watch()
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
		if err := c.sleep(ctx, min(updatesShare*time.Since(began), updatesRest)); err != nil {
			return err
		}
		if err := c.awaitChange(ctx, changed); err != nil {
			return err
		}
	}
}

// The pause after an update is at least updatesShare times as long as making it, up to
// updatesRest: with thousands of executors that takes many milliseconds, and changes are
// permanent.
const (
	updatesShare = 4
	updatesRest  = 100 * time.Millisecond
)

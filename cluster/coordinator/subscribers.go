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

// subscribers are the streams of clients that are told when something to show has come or
// changed. Any goroutine may use it.
type subscribers struct {
	mu        sync.Mutex
	followers map[*follower]struct{}
	watchers  map[chan struct{}]struct{} // woken when something to show has changed
	waiting   []chan struct{}            // each closed when the last of both has left
}

func newSubscribers() subscribers {
	return subscribers{followers: map[*follower]struct{}{}, watchers: map[chan struct{}]struct{}{}}
}

// watch gives a channel that holds a token whenever something to show has changed.
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

// gone returns a channel that is closed when no stream is left.
func (s *subscribers) gone() <-chan struct{} {
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

// closeWaiting tells who waits for it that no stream is left. The caller holds mu.
func (s *subscribers) closeWaiting() {
	if len(s.followers)+len(s.watchers) > 0 {
		return
	}
	for _, ch := range s.waiting {
		close(ch)
	}
	s.waiting = nil
}

// followed is whether a client follows a run.
func (s *subscribers) followed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.followers) > 0
}

// follow gives a follower the notes from now on.
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

// note gives a note to every follower.
func (s *subscribers) note(n *clusterpb.Note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		f.note(n)
	}
}

// updates sends a client what look makes of an update each time something to show
// may have changed, up to the one that look calls the last. look is called in the
// loop. settle, if there is one, may wait for what the last update lacks.
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

package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/driver/panel"
)

// subscribers are the clients' streams that are notified of changes and notes. Any goroutine
// may use it.
type subscribers struct {
	mu        sync.Mutex
	followers map[*follower]struct{}
	watchers  map[chan struct{}]struct{} // notified of changes
	panels    map[*panelStream]struct{}  // notified of changes by their kind; the end does not wait for them
	waiting   []chan struct{}            // closed when the last stream has ended
}

// panelStream is a stream of Watch. Its channels have a capacity of 1.
type panelStream struct{ changed, progressed chan struct{} }

// register adds a stream to those of its kind in s, until leave is called.
func register[S comparable](s *subscribers, streams map[S]struct{}, stream S) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams[stream] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(streams, stream)
		s.closeWaiting()
	}
}

// show registers a panel.
func (s *subscribers) show() (p *panelStream, leave func()) {
	p = &panelStream{changed: make(chan struct{}, 1), progressed: make(chan struct{}, 1)}
	return p, register(s, s.panels, p)
}

// watch returns a channel that receives a token after each change.
func (s *subscribers) watch() (changed <-chan struct{}, leave func()) {
	ch := make(chan struct{}, 1)
	return ch, register(s, s.watchers, ch)
}

// wake notifies the streams of a change.
func (s *subscribers) wake() { s.tell(func(p *panelStream) { notify(p.changed) }) }

// progressed notifies the streams of a step or metric.
func (s *subscribers) progressed() { s.tell(func(p *panelStream) { notify(p.progressed) }) }

// used notifies the streams of the use of CPU and memory. Panels look themselves.
func (s *subscribers) used() { s.tell(func(*panelStream) {}) }

// tell notifies the watchers, and calls panel for each panel.
func (s *subscribers) tell(panel func(*panelStream)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.panels {
		panel(p)
	}
	for ch := range s.watchers {
		notify(ch)
	}
}

func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
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

// note passes a note to every follower.
func (s *subscribers) note(n *clusterpb.Note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		f.note(n)
	}
}

// until calls over in the loop, at once and after each change, until it returns true. show, unless nil, is called
// outside of the loop before the wait for a change.
func (c *Coordinator) until(ctx context.Context, over func() bool, show func() error) error {
	changed, leave := c.subs.watch()
	defer leave()
	for {
		done, err := ask(ctx, &c.eventLoop, func() (bool, error) { return over(), nil })
		if err == nil && !done && show != nil {
			err = show()
		}
		if err != nil || done {
			return err
		}
		if err := c.awaitChange(ctx, changed); err != nil {
			return err
		}
	}
}

// updates sends updates that look fills, in the loop, after each change until look returns
// true. settle, unless nil, may complete the last update outside the loop.
func updates[U any](c *Coordinator, stream grpc.ServerStreamingServer[U], look func(*U) (last bool),
	settle func(context.Context, *U),
) error {
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

// Watch implements the Control service. A panel looks after each change, after progress if it may be sent by now, and
// at the latest after panel.UsageEvery: for usage, and for agents that are silent.
func (c *control) Watch(_ *clusterpb.WatchRequest, stream grpc.ServerStreamingServer[clusterpb.ClusterStatus]) error {
	ctx := stream.Context()
	p, leave := c.subs.show()
	defer leave()
	var pacer panel.Pacer
	for {
		began := time.Now()
		var st *clusterpb.ClusterStatus
		err := c.call(ctx, func() { st = c.clusterStatus() })
		if errors.Is(err, ErrOver) {
			return stream.Send(c.lastWords())
		}
		if err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		now := time.Now()
		if pacer.Offer(st, now) {
			if err := stream.Send(st); err != nil {
				return err
			}
		}
		_ = c.sleep(ctx, max(pacer.Rest(now), min(updatesShare*time.Since(began), panelRest))) // awaitPanel reports the end
		if err := c.awaitPanel(ctx, p, now); err != nil {
			return err
		}
	}
}

// panelRest bounds the pause of a panel for a large cluster: a stop is shown within 100 ms.
const panelRest = 50 * time.Millisecond

// awaitPanel waits until a panel must look again, having looked last at a time. The cluster's end is no error.
func (c *Coordinator) awaitPanel(ctx context.Context, p *panelStream, looked time.Time) error {
	usage := time.After(time.Until(looked.Add(panel.UsageEvery)))
	progress := time.After(time.Until(looked.Add(panel.ProgressEvery)))
	var progressed <-chan struct{}
	for {
		select {
		case <-progress:
			progressed = p.progressed
			continue
		case <-p.changed:
		case <-progressed:
		case <-usage:
		case <-c.done:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// lastWords returns the status after the cluster's end.
func (c *Coordinator) lastWords() *clusterpb.ClusterStatus {
	c.subs.mu.Lock() // for other panels: the loop has ended
	defer c.subs.mu.Unlock()
	st := c.clusterStatus()
	if c.lc.State() == lifecycle.Releasing {
		st.State, st.Executors, st.Waiting = "released", nil, "" // their connections broke because they were ended
	}
	return st
}

// notesKept is how many notes are kept; older ones are dropped.
const notesKept = 500

// notes are the cluster's newest notes, messages to users that are not lines of tasks.
type notes struct {
	kept []*clusterpb.Note
	gone int // older ones
}

func (n *notes) add(note *clusterpb.Note) {
	n.kept = append(n.kept, note)
	if over := len(n.kept) - notesKept; over > 0 {
		n.kept = slices.Delete(n.kept, 0, over)
		n.gone += over
	}
}

// total returns how many notes there have been.
func (n *notes) total() int { return n.gone + len(n.kept) }

// since returns the notes after the first shown ones, as far as they are kept.
func (n *notes) since(told int) []*clusterpb.Note { return n.between(told, n.total()) }

// between returns the notes after the first shown ones up to number end.
func (n *notes) between(told, end int) []*clusterpb.Note {
	from, to := min(max(0, told-n.gone), len(n.kept)), min(max(0, end-n.gone), len(n.kept))
	return slices.Clone(n.kept[from:max(from, to)])
}

func (n *notes) has(text string) bool {
	return slices.ContainsFunc(n.kept, func(o *clusterpb.Note) bool { return o.GetText() == text })
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tfcluster/tfcluster/rdma/memory"
)

// queued is the maximum number of completions that wait for their receiver. Then the writes of the peer wait, too.
const queued = 64

// link is a Link with one writer at a time, one reader, and one end. Its carrier has what is specific to a provider.
type link struct {
	carrier
	ended  chan struct{} // closed by end
	reader sync.WaitGroup

	writing     chan struct{} // holds one token: a Write at a time
	completions chan Completion
	closing     func() error // called once

	mu  sync.Mutex
	err error // guarded by mu; not nil once the link has ended
}

// carrier carries writes to the peer, and the peer's writes to this process.
type carrier interface {
	// layout returns the slots of the peer's memory.
	layout() memory.Layout
	// put writes data to the place of a completion and informs the peer. One call is made at a time.
	put(c Completion, data []byte) error
	// next returns the peer's next write when its data is here. One goroutine calls it, when the link has room for
	// the write that it returned before.
	next() (Completion, error)
	// interrupt ends the calls in progress, because the link has ended. It is called once.
	interrupt(reason error)
	// close is called when no call is in progress, after interrupt.
	close() error
}

func newLink(c carrier) *link {
	l := &link{
		carrier: c, ended: make(chan struct{}), writing: make(chan struct{}, 1), completions: make(chan Completion, queued),
	}
	l.closing = sync.OnceValue(func() error {
		l.reader.Wait()
		l.writing <- struct{}{} // waits for a writer
		defer func() { <-l.writing }()
		return l.carrier.close()
	})
	l.reader.Go(l.read)
	return l
}

// within returns an error if a write is not within a slot of the memory.
func within(c Completion, layout memory.Layout) error {
	room := layout.SlotSize(c.Slot)
	if room < 0 || c.Offset < 0 || c.Size < 0 || c.Size > room || c.Offset > room-c.Size {
		return fmt.Errorf("a write of %d bytes at offset %d of slot %d, which does not fit into memory of %s", c.Size,
			c.Offset, c.Slot, layout)
	}
	return nil
}

// Write implements Link.
func (l *link) Write(ctx context.Context, to Place, data []byte, immediate uint32) error {
	c := Completion{Place: to, Size: int64(len(data)), Immediate: immediate}
	if err := within(c, l.layout()); err != nil {
		return err
	}
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-l.ended:
		return l.Err()
	case <-ctx.Done():
		return fmt.Errorf("an earlier write has not ended: %w", context.Cause(ctx))
	}
	if err := ctx.Err(); err != nil { // nothing has been written
		return context.Cause(ctx)
	}
	givenUp := func() error { return fmt.Errorf("the peer did not take a write in time: %w", context.Cause(ctx)) }
	stop := context.AfterFunc(ctx, func() { l.end(givenUp()) })
	err := l.put(c, data)
	if !stop() {
		return givenUp()
	}
	if err != nil {
		l.end(ended(err))
		return l.Err()
	}
	return nil
}

// ended returns the error of a link for an error of its connection.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, ErrPeerClosed) {
		return ErrPeerClosed
	}
	return err
}

// end ends the link for a reason. The first reason counts.
func (l *link) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = reason
	close(l.ended)
	l.interrupt(reason)
}

// read takes the peer's records until the link ends.
func (l *link) read() {
	defer close(l.completions)
	for {
		c, err := l.next()
		if err != nil {
			l.end(err)
			return
		}
		select {
		case l.completions <- c:
		case <-l.ended:
			return
		}
	}
}

// Completions implements Link.
func (l *link) Completions() <-chan Completion { return l.completions }

// Err implements Link.
func (l *link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close implements Link.
func (l *link) Close() error {
	l.end(ErrClosed)
	return l.closing()
}

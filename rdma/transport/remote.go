package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// The flow of messages. A message is an RDMA write of a record with an immediate, behind the writes of its data. Small
// data is in the message, behind the record, and the receiver puts it at its place.
const (
	credits  = queued          // messages that the peer has not taken
	grantAt  = credits / 2     // messages taken, of which the peer is told by a grant: an empty write with their number
	grants   = 4               // receives for grants: at most credits/grantAt are on their way
	requests = 256             // writes that are not complete
	signalAt = credits / 4     // writes of which one has a completion: each wakes a goroutine
	settling = 2 * time.Second // for what the device does without the peer
)

// remote is the carrier of RDMA: it writes data and records into the peer's memory.
//
// A goroutine that waits for something polls the completion queue itself; while one polls, others wait for what it gets. So
// no completion has to be passed from a polling goroutine to the waiting one. The stream on which the ends have met stays
// open: it ends when the peer's process does, while a device notices only that its retries fail.
type remote struct {
	conn   net.Conn
	in     io.Reader
	own    *Region
	room   memory.Layout // of the peer's memory
	peer   offer
	queue  *verbs.Queue
	memory *buffers
	device *Verbs
	alive  sync.WaitGroup // follows the stream

	mu      sync.Mutex
	changed *sync.Cond // what is guarded by mu
	flow               // guarded by mu
}

// flow is what was sent and what has come.
type flow struct {
	polling bool // a goroutine polls the queue, without mu
	broken  bool // the queue cannot be polled
	over    error
	sending
	receiving
}

// sending counts what was sent, from the beginning.
type sending struct {
	posted, completed uint64          // writes
	signaled          uint64          // the last one that has a completion of its own
	sent, granted     uint64          // messages, and those that the peer has taken
	slots             [credits]uint64 // the last write of each slot
	stages            [2]uint64       // and of each stage
	stage             int             // the next one
}

// receiving counts what has come, from the beginning.
type receiving struct {
	arrived  []Completion // for next
	received uint64       // messages
	returned uint64       // by next
	taken    uint64       // by the link
	reported uint64       // of these, to the peer

	closed bool   // the peer has closed its link
	last   uint64 // closed: the number of its messages
}

func (r *remote) layout() memory.Layout { return r.room }

// next implements carrier.
func (r *remote) next() (Completion, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = r.returned
	if err := r.grant(); err != nil {
		return Completion{}, err
	}
	r.await(func() bool { return len(r.arrived) > 0 || r.over != nil || r.closed && r.received >= r.last })
	if len(r.arrived) == 0 && !errors.Is(r.over, ErrClosed) {
		r.sweep() // the stream may have ended before the last message was seen
	}
	if len(r.arrived) > 0 {
		c := r.arrived[0]
		r.arrived = r.arrived[1:]
		r.returned++
		return c, nil
	}
	if r.over != nil {
		return Completion{}, r.over
	}
	return Completion{}, ErrPeerClosed
}

// grant tells the peer how many messages were taken, if enough are new to it. Caller holds mu.
func (r *remote) grant() error {
	if !r.repost(grantAt) {
		return nil
	}
	return r.post(r.granting())
}

// granting returns an empty write with the number of messages that were taken.
func (r *remote) granting() verbs.Write {
	return verbs.Write{Remote: r.peer.ring.address, RemoteKey: r.peer.ring.key, Notify: true, Immediate: uint32(r.reported)}
}

// repost posts a receive for each message that was taken, if there are so many; the caller reports them. Caller
// holds mu.
func (r *remote) repost(atLeast uint64) bool {
	n := r.taken - r.reported
	if n < atLeast || r.over != nil {
		return false
	}
	if err := r.queue.PostReceives(int(n)); err != nil {
		r.fail(err)
		return false
	}
	r.reported = r.taken
	return true
}

// handle notes a completion. Caller holds mu.
func (r *remote) handle(c verbs.Completion) {
	r.completed = max(r.completed, c.ID)
	var err error
	switch {
	case c.Status != verbs.Success:
		err = r.device.describe(c.Status)
	case c.Received && c.Length == 0:
		r.granted += uint64(c.Immediate - uint32(r.granted))
		err = r.queue.PostReceives(1)
	case c.Received:
		err = r.receive(c)
	}
	if err == nil && r.granted > r.sent {
		err = fmt.Errorf("%w: it says that it has taken %d messages, but only %d were sent", ErrProtocol, r.granted, r.sent)
	}
	if err != nil {
		r.fail(err)
	}
}

// receive takes a message from the ring. Caller holds mu.
func (r *remote) receive(w verbs.Completion) error {
	var message [slotSize]byte // the peer may change the ring
	copy(message[:], r.memory.ring[r.received%credits*slotSize:])
	c := parseRecord(message[:recordSize])
	c.Immediate = w.Immediate
	layout := r.own.mapping.Segment().Layout()
	if err := within(c, layout); err != nil {
		return fmt.Errorf("%w: it sent a message about %w", ErrProtocol, err)
	}
	if w.Length != recordRoom {
		if w.Length > slotSize || int64(w.Length) != recordRoom+c.Size {
			return fmt.Errorf("%w: it sent a message of %d bytes for a write of %d", ErrProtocol, w.Length, c.Size)
		}
		copy(r.own.mapping.Bytes()[layout.Begin(c.Slot)+c.Offset:], message[recordRoom:w.Length])
	}
	r.granted = max(r.granted, binary.LittleEndian.Uint64(message[recordSize:]))
	r.received++
	r.arrived = append(r.arrived, c)
	return nil
}

// follow follows the stream: the peer sends the number of its messages when it closes the link.
func (r *remote) follow() {
	var last [8]byte
	_, err := io.ReadFull(r.in, last[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		_ = r.queue.Fail() // also while the link is closed: the peer acknowledges nothing any more
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			r.fail(errors.New("the connection was closed, by the end of the peer or by something between the hosts (a firewall, a proxy)"))
		} else {
			r.fail(err)
		}
		return
	}
	r.closed, r.last = true, binary.LittleEndian.Uint64(last[:])
	r.wake()
	r.awaitFor(settling, func() bool { return r.over != nil || r.received >= r.last })
	if r.over == nil && r.received < r.last {
		r.fail(fmt.Errorf("the peer has closed the connection, and %d of its last writes were lost", r.last-r.received))
	}
}

// fail ends the connection; the first reason counts. Caller holds mu.
func (r *remote) fail(reason error) {
	if r.over == nil {
		r.over = reason
		_ = r.queue.Fail() // else the device gives up by itself
	}
	r.wake()
}

// interrupt implements carrier. A link that was closed completes what it has begun: see close.
func (r *remote) interrupt(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(reason, ErrClosed) && r.over == nil {
		r.over = reason
	}
	r.fail(reason)
}

// close implements carrier.
func (r *remote) close() error {
	r.mu.Lock()
	if errors.Is(r.over, ErrClosed) {
		r.finish()
	}
	_ = r.queue.Fail()
	r.awaitFor(settling, r.settled) // those behind the last one that is signaled end with the queue pair
	r.mu.Unlock()
	errs := []error{r.conn.Close()}
	r.alive.Wait()
	return errors.Join(append(errs, r.queue.Close(), r.memory.close())...)
}

// settled reports whether the writes with completions of their own are complete.
func (r *remote) settled() bool { return r.completed >= r.signaled }

// finish completes what was written, and tells the peer how much that is. Caller holds mu.
func (r *remote) finish() {
	r.awaitFor(settling, func() bool { return r.closed || r.hasRoom() })
	if !r.closed && r.signaled < r.posted {
		_ = r.postNow(true, r.granting()) // it completes those before
	}
	r.awaitFor(settling, func() bool { return r.closed || r.settled() })
	if !r.closed {
		_ = r.conn.SetWriteDeadline(time.Now().Add(settling))
		_, _ = r.conn.Write(binary.LittleEndian.AppendUint64(nil, r.sent)) // else the peer sees that the stream ends
	}
}

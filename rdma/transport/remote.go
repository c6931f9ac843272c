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

// The flow of messages. A message is an RDMA write of a record with an immediate, after the writes of its data. The
// message itself contains small data, after the record; the receiver copies it to its place.
const (
	credits  = queued          // messages that the peer has not taken
	grantAt  = credits / 2     // number of taken messages after which a grant reports it: an empty write
	grants   = 4               // receives for grants: at most credits/grantAt are on their way
	requests = 256             // writes that are not complete
	signalAt = credits / 4     // writes per completion: each completion wakes a goroutine
	settling = 2 * time.Second // time for the work of the device without the peer
)

// remote is the carrier of RDMA: it writes data and records into the peer's memory.
//
// A goroutine that waits for an event polls the completion queue itself. While one goroutine polls, the others wait
// for its result. So a polling goroutine need not pass a completion on to the waiting one. The stream on which the
// ends have met stays open: it ends when the peer's process exits, while a device notices only that its retries fail.
type remote struct {
	conn   net.Conn
	in     io.Reader
	own    *Region
	room   memory.Layout // of the peer's memory
	peer   offer
	queue  *verbs.Queue
	memory *buffers
	device *Verbs
	alive  sync.WaitGroup // the goroutine that follows the stream

	mu      sync.Mutex
	changed *sync.Cond // a change of the fields that are guarded by mu
	flow               // guarded by mu
}

// flow is the state of the messages in both directions.
type flow struct {
	polling bool // a goroutine polls the queue, without mu
	broken  bool // the queue cannot be polled
	over    error
	sending
	receiving
}

// sending counts the sent writes and messages, from the beginning.
type sending struct {
	posted, completed uint64          // writes
	signaled          uint64          // the last write that has a completion of its own
	sent, granted     uint64          // messages, and messages that the peer has taken
	slots             [credits]uint64 // the last write from each slot
	stages            [2]uint64       // the last write from each stage
	stage             int             // index of the next stage
}

// receiving counts the received messages, from the beginning.
type receiving struct {
	arrived  []Completion // for next
	received uint64       // messages
	returned uint64       // by next
	taken    uint64       // by the link
	reported uint64       // messages that were reported to the peer as taken

	closed bool   // the peer has closed its link
	last   uint64 // after closed: the number of the peer's messages
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

// grant reports to the peer how many messages were taken, if it does not know of enough of them. Caller holds mu.
func (r *remote) grant() error {
	if !r.repost(grantAt) {
		return nil
	}
	return r.post(r.granting())
}

// granting returns an empty write with the number of messages that were taken.
func (r *remote) granting() verbs.Write {
	return verbs.Write{
		Remote: r.peer.ring.address, RemoteKey: r.peer.ring.key, Notify: true, Immediate: uint32(r.reported),
	}
}

// repost posts a receive for each message that was taken since the last report, if these are at least atLeast. The
// caller reports them. Caller holds mu.
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

// handle handles a completion. Caller holds mu.
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
		// Also while the link is being closed: the peer acknowledges nothing any more.
		_ = r.queue.Fail()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			r.fail(errors.New(
				"the connection was closed, by the end of the peer or by something between the hosts (a firewall, a proxy)"))
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

// fail ends the connection. The first reason counts. Caller holds mu.
func (r *remote) fail(reason error) {
	if r.over == nil {
		r.over = reason
		_ = r.queue.Fail() // otherwise the device gives up by itself
	}
	r.wake()
}

// interrupt implements carrier. A closed link completes the writes that it has begun: see close.
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
	// The writes after the last signaled one end with the queue pair.
	r.awaitFor(settling, r.settled)
	r.mu.Unlock()
	errs := []error{r.conn.Close()}
	r.alive.Wait()
	return errors.Join(append(errs, r.queue.Close(), r.memory.close())...)
}

// settled reports whether the writes with completions of their own are complete.
func (r *remote) settled() bool { return r.completed >= r.signaled }

// finish completes the writes and sends the peer the number of messages. Caller holds mu.
func (r *remote) finish() {
	r.awaitFor(settling, func() bool { return r.closed || r.hasRoom() })
	if !r.closed && r.signaled < r.posted {
		last := r.granting()
		last.Signaled = true // completes the writes before it
		_ = r.postNow(last)
	}
	r.awaitFor(settling, func() bool { return r.closed || r.settled() })
	if !r.closed {
		_ = r.conn.SetWriteDeadline(time.Now().Add(settling))
		// After an error the peer notices the end of the stream.
		_, _ = r.conn.Write(binary.LittleEndian.AppendUint64(nil, r.sent))
	}
}

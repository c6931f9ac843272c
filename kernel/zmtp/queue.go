package zmtp

import (
	"bytes"
	"errors"
	"sync"
)

// errQueueFull is a peer that reads so slowly that even what must not be dropped no longer fits.
var errQueueFull = errors.New("zmtp: the peer does not read; its queue is full")

// entry is one thing waiting to be written: a message, bytes that are encoded already, or a note about dropped messages.
type entry struct {
	message Message
	command []byte
	lost    *Lost
	size    int64
}

// entryOverhead stands in the books for the headers and bookkeeping of one entry, so that empty messages count too.
const entryOverhead = 64

// queue holds what one peer has not been sent yet, bounded by bytes. One goroutine takes; any may put.
type queue struct {
	soft, hard int64
	filled     chan struct{} // one token when entries is not empty
	// direct writes what goes without waiting and returns how much that was; nil for none. It is called with mu held,
	// and only while the taking goroutine has nothing to write.
	direct func([]byte) int

	mu      sync.Mutex
	entries []entry // guarded by mu
	bytes   int64   // guarded by mu: of entries and of what take gave out and done did not settle
	closed  bool    // guarded by mu
	scratch []byte  // guarded by mu: for direct
}

func newQueue(soft, hard int64) *queue {
	return &queue{soft: soft, hard: hard, filled: make(chan struct{}, 1)}
}

// put appends a message. A droppable one is dropped over the soft limit, leaving a note in its place.
func (q *queue) put(m Message, droppable bool) error {
	size := m.Size() + entryOverhead
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil // the peer is gone: as with any message to nobody, nothing happens
	}
	if q.bytes == 0 && q.direct != nil && size <= directBelow {
		q.putDirect(m)
		return nil
	}
	if droppable && q.bytes > 0 && q.bytes+size > q.soft {
		q.drop(m)
		return nil
	}
	return q.append(entry{message: m, size: size})
}

// directBelow is the size up to which a message to a peer that keeps up is written by whoever sends it: waking another
// goroutine would cost more.
const directBelow = 16 << 10

// putDirect writes m at once and queues what did not go. Called with mu held and nothing queued.
func (q *queue) putDirect(m Message) {
	q.scratch = AppendMessage(q.scratch[:0], m)
	rest := q.scratch[q.direct(q.scratch):]
	if len(rest) > 0 {
		_ = q.append(entry{command: bytes.Clone(rest), size: int64(len(rest)) + entryOverhead}) // an empty queue has room
	}
}

// commandsBelow is the size of a queue up to which commands are added. Ours only answer a PING, and a peer that reads
// what is queued knows by it that we live.
const commandsBelow = 64 << 10

func (q *queue) putCommand(frame []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.bytes > commandsBelow {
		return nil
	}
	return q.append(entry{command: frame, size: int64(len(frame)) + entryOverhead})
}

// append is called with mu held.
func (q *queue) append(e entry) error {
	if q.bytes > 0 && q.bytes+e.size > q.hard {
		return errQueueFull
	}
	q.entries = append(q.entries, e)
	q.bytes += e.size
	select {
	case q.filled <- struct{}{}:
	default:
	}
	return nil
}

// drop counts m in the note at the end of the queue when that is about the same request. Called with mu held.
func (q *queue) drop(m Message) {
	if n := len(q.entries); n > 0 {
		if l := q.entries[n-1].lost; l != nil && sameHead(l.First, m) {
			l.Messages++
			l.Bytes += m.Size()
			return
		}
	}
	first := make(Message, max(len(m)-1, 0))
	for i := range first {
		first[i] = bytes.Clone(m[i]) // not to hold a large neighbour in memory
	}
	// A note always fits: it is small and stands for what was over the limit.
	q.entries = append(q.entries, entry{lost: &Lost{First: first, Messages: 1, Bytes: m.Size()}, size: first.Size() + entryOverhead})
	q.bytes += first.Size() + entryOverhead
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// sameHead reports whether a dropped message belongs to the same request and topic as the note's first one: the frame
// before the last two (a Jupyter message's parent header) and the first one are equal.
func sameHead(first, m Message) bool {
	n := len(m)
	if len(first) != n-1 || n < 4 {
		return false
	}
	return bytes.Equal(first[0], m[0]) && bytes.Equal(first[n-3], m[n-3])
}

// take moves entries worth up to limit bytes, at least one, into batch.
func (q *queue) take(batch []entry, limit int64) []entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for sum := int64(0); n < len(q.entries) && (n == 0 || sum+q.entries[n].size <= limit); n++ {
		sum += q.entries[n].size
	}
	batch = append(batch, q.entries[:n]...)
	if n == len(q.entries) {
		clear(q.entries) // let go of what was written
		q.entries = q.entries[:0]
		return batch
	}
	clear(q.entries[:n])
	q.entries = q.entries[n:]
	select {
	case q.filled <- struct{}{}:
	default:
	}
	return batch
}

// done settles entries given out by take.
func (q *queue) done(batch []entry) {
	var size int64
	for _, e := range batch {
		size += e.size
	}
	q.mu.Lock()
	if !q.closed {
		q.bytes -= size
	}
	q.mu.Unlock()
}

// empty reports whether everything put has been written.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes == 0
}

// close forgets what is left and makes further puts no-ops.
func (q *queue) close() {
	q.mu.Lock()
	q.closed, q.entries, q.bytes = true, nil, 0
	q.mu.Unlock()
}

package zmtp

import (
	"bytes"
	"errors"
	"sync"
)

// errQueueFull reports a peer that reads so slowly that its queue reached the hard limit.
var errQueueFull = errors.New(
	"the peer does not read what is sent to it: its connection is closed, and it may connect again")

// entry is one item to be written: a message, the body of a command, a note about dropped
// messages, or bytes that are encoded, and encrypted if the connection is.
type entry struct {
	message Message
	command []byte
	encoded []byte
	lost    *Lost
	size    int64
}

// entryOverhead is added to the size of each entry for headers and bookkeeping, so that empty
// messages count too.
const entryOverhead = 64

// queue holds the unsent entries of one peer, limited by size. One goroutine calls take; any
// goroutine may call put.
type queue struct {
	soft, hard int64
	filled     chan struct{} // one token when entries is not empty
	// direct writes as much as possible without blocking and returns the number of bytes; may
	// be nil. It is called with mu held, and only while the taking goroutine has nothing to
	// write.
	direct func([]byte) int
	// seal encrypts what is sent; nil for a peer without encryption. It is called by direct's
	// caller and by the taking goroutine, but never while the other has something to write: so
	// frames are encrypted in the order in which they are sent.
	seal *sealer

	mu      sync.Mutex
	entries []entry // guarded by mu
	bytes   int64   // guarded by mu: size of entries, and of entries between take and done
	closed  bool    // guarded by mu
	scratch []byte  // guarded by mu: for direct
}

func newQueue(soft, hard int64) *queue {
	return &queue{soft: soft, hard: hard, filled: make(chan struct{}, 1)}
}

// put appends a message. Above the soft limit, a droppable message is replaced by a note.
func (q *queue) put(m Message, droppable bool) error {
	size := m.Size() + entryOverhead
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil // the peer has disconnected: the message is dropped
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

// directBelow is the size below which the sending goroutine writes a message to a peer that
// keeps up: waking another goroutine would cost more.
const directBelow = 16 << 10

// putDirect writes m at once and queues the rest. The caller holds mu, and the queue is empty.
func (q *queue) putDirect(m Message) {
	if q.seal != nil {
		q.scratch = q.seal.appendMessage(q.scratch[:0], m)
	} else {
		q.scratch = AppendMessage(q.scratch[:0], m)
	}
	rest := q.scratch[q.direct(q.scratch):]
	if len(rest) > 0 {
		// Cannot fail: the queue is empty.
		_ = q.append(entry{encoded: bytes.Clone(rest), size: int64(len(rest)) + entryOverhead})
	}
}

// commandsBelow is the queue size up to which commands are added. Our commands only answer
// PING, and a peer that reads the queued messages knows that we are alive.
const commandsBelow = 64 << 10

// putCommand appends a command.
func (q *queue) putCommand(body []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.bytes > commandsBelow {
		return nil
	}
	return q.append(entry{command: body, size: int64(len(body)) + entryOverhead})
}

// append appends an entry. The caller holds mu.
func (q *queue) append(e entry) error {
	if q.bytes > 0 && q.bytes+e.size > q.hard {
		return errQueueFull
	}
	q.entries = append(q.entries, e)
	q.bytes += e.size
	q.signal()
	return nil
}

// signal wakes the taking goroutine. The caller holds mu.
func (q *queue) signal() {
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// drop counts m in the note at the end of the queue, if that is about the same request, or
// appends a new note. The caller holds mu.
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
		first[i] = bytes.Clone(m[i]) // a copy, so as not to retain a large neighbour
	}
	// A note always fits: it is small and replaces what exceeded the limit.
	q.entries = append(q.entries,
		entry{lost: &Lost{First: first, Messages: 1, Bytes: m.Size()}, size: first.Size() + entryOverhead})
	q.bytes += first.Size() + entryOverhead
	q.signal()
}

// sameHead reports whether a dropped message belongs to the same request and topic as the
// note's first one: the first frame and the third frame from the end (the parent header of a
// Jupyter message) are equal.
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
		clear(q.entries) // release what was written
		q.entries = q.entries[:0]
		return batch
	}
	clear(q.entries[:n])
	q.entries = q.entries[n:]
	q.signal()
	return batch
}

// done subtracts the size of entries returned by take.
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

// empty reports whether all entries have been written.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes == 0
}

// close discards the remaining entries and makes further puts no-ops.
func (q *queue) close() {
	q.mu.Lock()
	q.closed, q.entries, q.bytes = true, nil, 0
	q.mu.Unlock()
}

package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/rdma/memory"
)

// queued is the number of completions that wait for their receiver; the peer's writes wait behind them.
const queued = 64

// link is a Link on a stream of records. A record says what was written where. Its data is in the memory already, or
// follows it in the stream: that is all in which the providers differ.
type link struct {
	conn   net.Conn
	in     *bufio.Reader
	own    *memory.Mapping // the peer writes into it
	peer   peer
	ended  chan struct{} // closed by end
	reader sync.WaitGroup

	writing     chan struct{} // holds one token: a Write at a time
	completions chan Completion
	closing     func() error // once

	mu  sync.Mutex
	err error // guarded by mu; not nil once the link has ended
}

// peer is the memory at the other end.
type peer interface {
	// layout returns the slots of the memory.
	layout() memory.Layout
	// put writes data and its record.
	put(conn net.Conn, record []byte, to Place, data []byte) error
	// take completes a write of which the record has been read.
	take(in io.Reader, own *memory.Mapping, c Completion) error
	close() error
}

func newLink(conn net.Conn, in *bufio.Reader, own *memory.Mapping, p peer) *link {
	l := &link{
		conn: conn, in: in, own: own, peer: p, ended: make(chan struct{}),
		writing: make(chan struct{}, 1), completions: make(chan Completion, queued),
	}
	l.closing = sync.OnceValue(func() error {
		l.reader.Wait()
		l.writing <- struct{}{} // waits for a writer
		defer func() { <-l.writing }()
		return errors.Join(l.conn.Close(), l.peer.close())
	})
	l.reader.Go(l.read)
	return l
}

// recordSize is the size of a record: immediate, slot, offset and size, each in little-endian order.
const recordSize = 4 + 4 + 8 + 8

func (c Completion) append(to []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, c.Immediate)
	to = binary.LittleEndian.AppendUint32(to, uint32(c.Slot))
	to = binary.LittleEndian.AppendUint64(to, uint64(c.Offset))
	return binary.LittleEndian.AppendUint64(to, uint64(c.Size))
}

func parseRecord(record []byte) Completion {
	return Completion{
		Place:     Place{Slot: int(int32(binary.LittleEndian.Uint32(record[4:]))), Offset: int64(binary.LittleEndian.Uint64(record[8:]))},
		Immediate: binary.LittleEndian.Uint32(record),
		Size:      int64(binary.LittleEndian.Uint64(record[16:])),
	}
}

// within returns an error if a write is not within a slot of the memory.
func within(c Completion, layout memory.Layout) error {
	room := layout.SlotSize(c.Slot)
	if room < 0 || c.Offset < 0 || c.Size < 0 || c.Size > room || c.Offset > room-c.Size {
		return fmt.Errorf("a write of %d bytes at %d of slot %d: the memory has %s", c.Size, c.Offset, c.Slot, layout)
	}
	return nil
}

// Write implements Link.
func (l *link) Write(ctx context.Context, to Place, data []byte, immediate uint32) error {
	c := Completion{Place: to, Size: int64(len(data)), Immediate: immediate}
	if err := within(c, l.peer.layout()); err != nil {
		return err
	}
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-l.ended:
		return l.Err()
	case <-ctx.Done():
		return fmt.Errorf("wait for an earlier write: %w", context.Cause(ctx))
	}
	if err := ctx.Err(); err != nil { // nothing has been written
		return context.Cause(ctx)
	}
	givenUp := func() error { return fmt.Errorf("a write was given up: %w", context.Cause(ctx)) }
	stop := context.AfterFunc(ctx, func() { l.end(givenUp()) })
	err := l.peer.put(l.conn, c.append(make([]byte, 0, recordSize)), to, data)
	if !stop() {
		return givenUp()
	}
	if err != nil {
		l.end(ended(err))
		return l.Err()
	}
	return nil
}

// ended is the error of a link for that of its connection.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrPeerClosed
	}
	return fmt.Errorf("the connection to the peer broke: %w", err)
}

// end ends the link for a reason; the first one counts.
func (l *link) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = reason
	close(l.ended)
	_ = l.conn.SetDeadline(time.Now()) // wakes the reader and a writer, who close it
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

func (l *link) next() (Completion, error) {
	var record [recordSize]byte
	if n, err := io.ReadFull(l.in, record[:]); err != nil {
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ended within a record")
		}
		return Completion{}, ended(err)
	}
	c := parseRecord(record[:])
	if err := within(c, l.own.Segment().Layout()); err != nil {
		return Completion{}, fmt.Errorf("the peer sent %w", err)
	}
	if err := l.peer.take(l.in, l.own, c); err != nil {
		return Completion{}, fmt.Errorf("the connection to the peer broke within %d bytes: %w", c.Size, err)
	}
	return c, nil
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

// connecting bounds the time of a handshake by ctx; done removes the bound.
func connecting(ctx context.Context, conn net.Conn) (done func()) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	return func() {
		if stop() {
			_ = conn.SetDeadline(time.Time{})
		}
	}
}

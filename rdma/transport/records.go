package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/tfcluster/tfcluster/rdma/memory"
)

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
		Place: Place{
			Slot: int(int32(binary.LittleEndian.Uint32(record[4:]))), Offset: int64(binary.LittleEndian.Uint64(record[8:])),
		},
		Immediate: binary.LittleEndian.Uint32(record),
		Size:      int64(binary.LittleEndian.Uint64(record[16:])),
	}
}

// records is a stream of records. A record describes a write and its place. The data is in the memory already, or
// follows its record in the stream: this is the only difference between TCP and SharedMemory.
type records struct {
	conn net.Conn
	in   *bufio.Reader
	own  *memory.Mapping // the memory into which the peer writes
	room memory.Layout   // the layout of the peer's memory
	// take completes a write after its record has been read; nil: nothing is left to do.
	take func(c Completion) error
}

func (r *records) layout() memory.Layout { return r.room }

func (r *records) next() (Completion, error) {
	var record [recordSize]byte
	if n, err := io.ReadFull(r.in, record[:]); err != nil {
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the stream ended in the middle of a message")
		}
		return Completion{}, ended(err)
	}
	c := parseRecord(record[:])
	if err := within(c, r.own.Segment().Layout()); err != nil {
		return Completion{}, fmt.Errorf("%w: it sent a message about %w", ErrProtocol, err)
	}
	if r.take == nil {
		return c, nil
	}
	if err := r.take(c); err != nil {
		return Completion{}, fmt.Errorf("a write of %d bytes broke off: %w", c.Size, err)
	}
	return c, nil
}

// interrupt wakes the reader and a writer.
func (r *records) interrupt(error) { _ = r.conn.SetDeadline(time.Now()) }

func (r *records) close() error { return r.conn.Close() }

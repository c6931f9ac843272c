package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/tfcluster/tfcluster/rdma/memory"
)

// TCP is the Provider for any reliable stream, such as TLS on TCP. The data follows its record in the stream, and is
// read into its place.
type TCP struct{}

// magic begins the handshake of both providers, with the version of the records.
var magic = [4]byte{'t', 'f', 'w', 1}

// greeting is what each end sends first: magic, the number of slots, the size of each.
const greetingSize = 4 + 4 + 8

func greeting(own *memory.Mapping) []byte {
	g := binary.LittleEndian.AppendUint32(magic[:len(magic):len(magic)], uint32(own.Segment().Slots()))
	return binary.LittleEndian.AppendUint64(g, uint64(own.Segment().SlotSize()))
}

func parseGreeting(g []byte) (slots int, slotSize int64, err error) {
	if [4]byte(g) != magic {
		return 0, 0, fmt.Errorf("the peer begins with %q, not with %q", g[:4], magic[:])
	}
	slots, slotSize = int(int32(binary.LittleEndian.Uint32(g[4:]))), int64(binary.LittleEndian.Uint64(g[8:]))
	if slots < 1 || slotSize < 1 {
		return 0, 0, fmt.Errorf("the peer has %d slots of %d bytes", slots, slotSize)
	}
	return slots, slotSize, nil
}

// Connect implements Provider.
func (TCP) Connect(ctx context.Context, conn net.Conn, own *memory.Mapping) (Link, error) {
	done := connecting(ctx, conn)
	defer done()
	sent := make(chan error, 1)
	go func() { // ends with ctx; both ends send first, and a pipe has no buffer
		_, err := conn.Write(greeting(own))
		sent <- err
	}()
	in := bufio.NewReaderSize(conn, 64<<10)
	g := make([]byte, greetingSize)
	_, err := io.ReadFull(in, g)
	if err != nil {
		_ = conn.Close() // wakes the sender
	}
	if err = errors.Join(err, <-sent); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("greet the peer: %w", err)
	}
	p := &stream{}
	if p.slots, p.slotSize, err = parseGreeting(g); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newLink(conn, in, own, p), nil
}

// stream is the memory of a peer that is reached by a stream.
type stream struct {
	slots    int
	slotSize int64
}

func (s *stream) size() (slots int, slotSize int64) { return s.slots, s.slotSize }

// put sends the record and the data with one writev where conn is TCP.
func (s *stream) put(conn net.Conn, record []byte, _ Place, data []byte) error {
	buffers := net.Buffers{record, data}
	_, err := buffers.WriteTo(conn)
	return err
}

func (s *stream) take(in io.Reader, own *memory.Mapping, c Completion) error {
	return own.Use(func(slots [][]byte) error {
		_, err := io.ReadFull(in, slots[c.Slot][c.Offset:c.Offset+c.Size])
		return err
	})
}

func (s *stream) close() error { return nil }

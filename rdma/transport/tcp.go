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
var magic = [4]byte{'t', 'f', 'w', 2}

// greeting is what each end sends first: magic, and the number and the size of the slots of each class; zeros for
// classes that the memory does not have.
const greetingSize = 4 + memory.MaxClasses*(4+8)

func greeting(own *memory.Mapping) []byte {
	g := append(make([]byte, 0, greetingSize), magic[:]...)
	for _, c := range own.Segment().Layout() {
		g = binary.LittleEndian.AppendUint32(g, uint32(c.Slots))
		g = binary.LittleEndian.AppendUint64(g, uint64(c.Size))
	}
	return g[:greetingSize]
}

func parseGreeting(g []byte) (memory.Layout, error) {
	if [4]byte(g) != magic {
		return nil, fmt.Errorf("the peer begins with %q, not with %q", g[:4], magic[:])
	}
	var layout memory.Layout
	for g = g[4:]; len(g) > 0; g = g[4+8:] {
		c := memory.Class{Slots: int(int32(binary.LittleEndian.Uint32(g))), Size: int64(binary.LittleEndian.Uint64(g[4:]))}
		if c != (memory.Class{}) {
			layout = append(layout, c)
		}
	}
	return layout, layout.Check()
}

// Register implements Provider. A stream is read into the memory by this process.
func (TCP) Register(own *memory.Mapping) (*Region, error) { return &Region{mapping: own}, nil }

// Connect implements Provider.
func (TCP) Connect(ctx context.Context, conn net.Conn, region *Region) (Link, error) {
	own := region.mapping
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
	if p.slots, err = parseGreeting(g); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newLink(conn, in, own, p), nil
}

// stream is the memory of a peer that is reached by a stream.
type stream struct{ slots memory.Layout }

func (s *stream) layout() memory.Layout { return s.slots }

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

package transport

import (
	"bufio"
	"context"
	"io"
	"net"

	"github.com/tfcluster/tfcluster/rdma/memory"
)

// TCP is the Provider for any reliable stream, such as TLS on TCP. The data follows its record in the stream; the
// receiver reads it into its place.
type TCP struct{}

// Register implements Provider. This process itself reads the stream into the memory.
func (TCP) Register(own *memory.Mapping) (*Region, error) { return &Region{mapping: own}, nil }

// Connect implements Provider.
func (TCP) Connect(ctx context.Context, conn net.Conn, region *Region) (Link, error) {
	in := bufio.NewReaderSize(conn, 64<<10)
	layout, _, err := greet(ctx, conn, in, region.mapping, nil)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newLink(newStream(conn, in, region.mapping, layout)), nil
}

// stream is the carrier with data that follows its record.
type stream struct {
	records
	without error // why it does not use RDMA, if that was tried
}

func newStream(conn net.Conn, in *bufio.Reader, own *memory.Mapping, layout memory.Layout) *stream {
	s := &stream{records: records{conn: conn, in: in, own: own, room: layout}}
	s.take = func(c Completion) error {
		return own.Use(func(slots [][]byte) error {
			_, err := io.ReadFull(in, slots[c.Slot][c.Offset:c.Offset+c.Size])
			return err
		})
	}
	return s
}

// put sends the record and the data with one writev where conn is TCP.
func (s *stream) put(c Completion, data []byte) error {
	buffers := net.Buffers{c.append(make([]byte, 0, recordSize)), data}
	_, err := buffers.WriteTo(s.conn)
	return err
}

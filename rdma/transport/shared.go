package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/tfcluster/tfcluster/rdma/memory"
)

// SharedMemory is the Provider for processes of one user on one host. Its connections are unix sockets: each end maps
// the memory of the other one.
type SharedMemory struct{}

// Register implements Provider. A peer needs only the descriptor, which Connect sends.
func (SharedMemory) Register(own *memory.Mapping) (*Region, error) { return &Region{mapping: own}, nil }

// Connect implements Provider. conn is a *net.UnixConn.
func (SharedMemory) Connect(ctx context.Context, conn net.Conn, region *Region) (Link, error) {
	own := region.mapping
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("shared memory needs a unix socket, not a %T", conn)
	}
	mapping, err := exchange(ctx, socket, own)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	in := bufio.NewReaderSize(conn, recordSize*queued)
	return newLink(&shared{records{conn: conn, in: in, own: own, room: mapping.Segment().Layout()}, mapping}), nil
}

// exchange sends the descriptor of the own memory and maps the memory of the peer.
func exchange(ctx context.Context, socket *net.UnixConn, own *memory.Mapping) (*memory.Mapping, error) {
	done := connecting(ctx, socket)
	defer done()
	if err := memory.Send(socket, greeting(magic, own), own.Segment().File()); err != nil {
		return nil, ended(err)
	}
	g := make([]byte, greetingSize)
	n, files, err := memory.Receive(socket, g)
	if err == nil && n < len(g) {
		_, err = io.ReadFull(socket, g[n:])
	}
	if err != nil {
		closeAll(files)
		return nil, ended(err)
	}
	if len(files) != 1 {
		closeAll(files)
		return nil, fmt.Errorf("%w: it sent %d descriptors of memory, not one", ErrProtocol, len(files))
	}
	layout, err := parseGreeting(g, magic)
	if err != nil {
		return nil, errors.Join(err, files[0].Close())
	}
	segment, err := memory.Received(files[0], layout)
	if err != nil {
		return nil, err
	}
	mapping, err := segment.Map()
	if err != nil {
		return nil, errors.Join(err, segment.Close())
	}
	return mapping, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// shared copies data to the peer's memory, which is mapped here, and sends the record after it.
type shared struct {
	records
	mapping *memory.Mapping
}

func (s *shared) put(c Completion, data []byte) error {
	err := s.mapping.Use(func(slots [][]byte) error {
		copy(slots[c.Slot][c.Offset:], data)
		return nil
	})
	if err != nil {
		return err
	}
	_, err = s.conn.Write(c.append(make([]byte, 0, recordSize)))
	return err
}

func (s *shared) close() error {
	return errors.Join(s.records.close(), s.mapping.Close(), s.mapping.Segment().Close())
}

// Mapped returns the peer's memory in this process for a link of SharedMemory; nil for a link of another provider.
// The memory belongs to the link: Close unmaps it.
func Mapped(l Link) *memory.Mapping {
	if l, ok := l.(*link); ok {
		if s, ok := l.carrier.(*shared); ok {
			return s.mapping
		}
	}
	return nil
}

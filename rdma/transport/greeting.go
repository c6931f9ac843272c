package transport

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/rdma/memory"
)

// magic begins a greeting and has the version of the records. offers begins a greeting before an offer of RDMA.
var (
	magic  = [4]byte{'t', 'f', 'w', 2}
	offers = [4]byte{'t', 'f', 'v', 2}
)

// greetingSize is the size of a greeting, which each end sends first: magic, and the number and the size of the slots
// of each class; zeros for classes that the memory does not have.
const greetingSize = 4 + memory.MaxClasses*(4+8)

func greeting(begin [4]byte, own *memory.Mapping) []byte {
	g := append(make([]byte, 0, greetingSize), begin[:]...)
	for _, c := range own.Segment().Layout() {
		g = binary.LittleEndian.AppendUint32(g, uint32(c.Slots))
		g = binary.LittleEndian.AppendUint64(g, uint64(c.Size))
	}
	return g[:greetingSize]
}

func parseGreeting(g []byte, begin ...[4]byte) (memory.Layout, error) {
	if !slices.Contains(begin, [4]byte(g)) {
		return nil, fmt.Errorf("%w: its first bytes are %q, not %q", ErrProtocol, g[:4], begin)
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

// greet sends the layout of the own memory, and an offer if there is one. It returns the layout and the offer of the
// peer. An end without RDMA reads the other end's offer, too.
func greet(ctx context.Context, conn net.Conn, in io.Reader, own *memory.Mapping,
	offer []byte,
) (memory.Layout, []byte, error) {
	done := connecting(ctx, conn)
	defer done()
	begin := magic
	if offer != nil {
		begin = offers
	}
	var layout memory.Layout
	var theirs []byte
	err := exchanged(conn, append(greeting(begin, own), offer...), func() error {
		g := make([]byte, greetingSize)
		_, err := io.ReadFull(in, g)
		if err != nil {
			return err
		}
		if layout, err = parseGreeting(g, magic, offers); err != nil || [4]byte(g) != offers {
			return err
		}
		theirs = make([]byte, offerSize)
		_, err = io.ReadFull(in, theirs)
		return err
	})
	if err != nil {
		return nil, nil, ended(err)
	}
	return layout, theirs, nil
}

// exchanged sends a message while read reads the peer's message: both ends send first, and a pipe has no buffer. An
// error of read closes the connection.
func exchanged(conn net.Conn, message []byte, read func() error) error {
	sent := make(chan error, 1)
	go func() { // ends with the connection's deadline, or when it is closed
		_, err := conn.Write(message)
		sent <- err
	}()
	err := read()
	if err != nil {
		_ = conn.Close() // wakes the sender
	}
	return cmp.Or(err, <-sent)
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

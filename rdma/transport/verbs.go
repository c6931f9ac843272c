package transport

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// Verbs is the Provider that writes by RDMA, through a port of a device. Its connections are streams, as those of
// TCP. If the other end has no RDMA, or the ends cannot be connected by it, the link uses TCP on the same stream.
// Data that is written by RDMA is not encrypted.
type Verbs struct {
	settings VerbsSettings
	library  *verbs.Library
	device   *verbs.Device
	domain   *verbs.Domain
	port     port
}

// OpenVerbs opens the port. Its error is one line with the reason why there is no RDMA.
func OpenVerbs(settings VerbsSettings) (*Verbs, error) {
	v := &Verbs{settings: settings}
	var err error
	if v.library, err = verbs.Open(settings.Library); err != nil {
		return nil, err
	}
	if v.device, v.port, err = openPort(v.library, settings); err != nil {
		return nil, err
	}
	if v.domain, err = v.device.NewDomain(); err != nil {
		return nil, errors.Join(err, v.device.Close())
	}
	return v, nil
}

// Close closes the device. All links and regions have been closed.
func (v *Verbs) Close() error { return errors.Join(v.domain.Close(), v.device.Close()) }

// String returns the name of the device, such as "mlx5_0 port 1, GID 3 (10.0.0.1)".
func (v *Verbs) String() string {
	return fmt.Sprintf("%s port %d, GID %d (%s)", v.device.Name, v.port.Number, v.settings.GID, v.port.gid.Address())
}

// Register implements Provider. The pages of the memory are locked until the region is closed.
func (v *Verbs) Register(own *memory.Mapping) (*Region, error) {
	device, err := v.domain.Register(own.Bytes(), verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		var limit unix.Rlimit
		if errors.Is(err, unix.ENOMEM) && unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil &&
			limit.Cur != unix.RLIM_INFINITY {
			err = fmt.Errorf("%w: this process may lock %d kB of memory: raise ulimit -l of the executors", err, limit.Cur>>10)
		}
		return nil, err
	}
	return &Region{mapping: own, device: device}, nil
}

// Connect implements Provider.
func (v *Verbs) Connect(ctx context.Context, conn net.Conn, region *Region) (Link, error) {
	r, mine, failed := v.prepare(conn, region)
	var offered []byte
	if failed == nil {
		offered = mine.encode()
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	layout, theirs, err := greet(ctx, conn, in, region.mapping, offered)
	if err == nil && failed == nil && theirs != nil {
		r.room, r.in = layout, in
		failed, err = v.meet(ctx, r, mine, theirs)
		if err == nil && failed == nil {
			r.alive.Go(r.follow)
			return newLink(r), nil
		}
	}
	if r != nil {
		err = errors.Join(err, r.queue.Close(), r.memory.close())
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	s := newStream(conn, in, region.mapping, layout)
	if s.without = failed; failed == nil {
		s.without = errors.New("the peer has none: a line of that task or status --fabric says why")
	}
	return newLink(s), nil
}

// prepare makes a queue pair with its receives, and the offer that describes it.
func (v *Verbs) prepare(conn net.Conn, region *Region) (*remote, offer, error) {
	r := &remote{conn: conn, own: region, device: v}
	r.changed = sync.NewCond(&r.mu)
	var err error
	if r.memory, err = newBuffers(v.domain); err != nil {
		return nil, offer{}, err
	}
	r.queue, err = v.domain.NewQueue(
		verbs.QueueConfig{Port: v.port.Number, Sends: requests, Receives: credits + grants, Inline: smallSize})
	if err == nil {
		if err = r.queue.PostReceives(credits + grants); err != nil {
			err = errors.Join(err, r.queue.Close())
		}
	}
	if err != nil {
		return nil, offer{}, errors.Join(err, r.memory.close())
	}
	var sequence [4]byte
	_, _ = rand.Read(sequence[:]) // never fails
	return r, offer{
		queue: verbs.Peer{
			Queue: r.queue.Number, Sequence: binary.LittleEndian.Uint32(sequence[:]) >> 8, GID: v.port.gid, LID: v.port.LID,
		},
		ethernet: v.port.Ethernet, mtu: v.port.MTU,
		memory: window{region.device.Address, region.device.RemoteKey},
		ring:   window{r.memory.in.Address, r.memory.in.RemoteKey},
	}, nil
}

// meet connects the queue pair to that of the peer's offer, and tests the connection. failed is why one of the ends
// cannot use it; then both use TCP.
func (v *Verbs) meet(ctx context.Context, r *remote, mine offer, theirs []byte) (failed, err error) {
	if r.peer, failed = parseOffer(theirs); failed == nil {
		failed = mine.fits(r.peer)
	}
	if failed == nil {
		failed = r.queue.Connect(verbs.Path{
			MTU: min(mine.mtu, r.peer.mtu), Sequence: mine.queue.Sequence, GIDIndex: v.settings.GID,
			IsGlobal: mine.isGlobal(r.peer), Peer: r.peer.queue, Timeout: v.settings.Timeout, Retries: v.settings.Retries,
			Class: v.settings.TrafficClass, Level: v.settings.ServiceLevel,
		})
	}
	done := connecting(ctx, r.conn)
	defer done()
	if failed, err = r.agree(failed, "the peer cannot connect by RDMA: a line of that task says why"); failed != nil ||
		err != nil {
		return failed, err
	}
	return r.agree(r.reach(ctx), "the peer's writes by RDMA do not arrive here: the network between them may drop RDMA")
}

// agree exchanges with the peer whether each end has succeeded. failed is the own failure, or theirs if only the peer
// has failed.
func (r *remote) agree(own error, theirs string) (failed, err error) {
	message, answer := []byte{1}, []byte{0}
	if own != nil {
		message[0] = 0
	}
	err = exchanged(r.conn, message, func() error {
		_, err := io.ReadFull(r.in, answer)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("agree on a connection by RDMA (start --fabric tcp does without it): %w", ended(err))
	}
	if own == nil && answer[0] != 1 {
		return errors.New(theirs), nil
	}
	return own, nil
}

// describe returns the error of a failed write or receive.
func (v *Verbs) describe(s verbs.Status) error {
	text := v.library.StatusText(uint32(s))
	switch s {
	case verbs.Flushed:
		return fmt.Errorf("the RDMA device %s has ended the connection: %s", v.device.Name, text)
	case verbs.RemoteAccess:
		return fmt.Errorf("the peer's RDMA device refuses access to its memory, which the peer has freed or never gave: %s",
			text)
	case verbs.RetriesExceeded:
		return fmt.Errorf(
			"the peer's device does not answer: %s: its host may be down, or the network between them drops RDMA", text)
	}
	return fmt.Errorf("a write by RDMA over %s of this host to the peer failed: %s (start --fabric tcp does without RDMA)",
		v.device.Name, text)
}

// Via returns how a link's data travels: "RDMA by mlx5_0 port 1, GID 3 (10.0.0.1)", "shared memory" or "TCP". without
// is the reason for which a link of Verbs uses TCP.
func Via(l Link) (way string, without error) {
	own, ok := l.(*link)
	if !ok {
		return "", nil
	}
	switch c := own.carrier.(type) {
	case *remote:
		return "RDMA by " + c.device.String(), nil
	case *shared:
		return "shared memory", nil
	case *stream:
		return "TCP", c.without
	}
	return "", nil
}

package transport

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// offer describes an end's queue pair and memory to the peer.
type offer struct {
	queue    verbs.Peer
	ethernet bool
	mtu      uint32
	memory   window
	ring     window // of messages
}

// window is a part of the memory that the peer may write to.
type window struct {
	address uint64
	key     uint32
}

// offerSize is the size of an offer: queue pair, sequence number, GID, LID, link layer, MTU, two addresses with their
// keys, and the number of messages in the ring. Numbers are in little-endian order.
const offerSize = 4 + 4 + 16 + 2 + 1 + 1 + 2*(8+4) + 2

func (o offer) encode() []byte {
	b := make([]byte, 0, offerSize)
	b = binary.LittleEndian.AppendUint32(b, o.queue.Queue)
	b = binary.LittleEndian.AppendUint32(b, o.queue.Sequence)
	b = append(b, o.queue.GID[:]...)
	b = binary.LittleEndian.AppendUint16(b, o.queue.LID)
	layer := byte(0)
	if o.ethernet {
		layer = 1
	}
	b = append(b, layer, byte(o.mtu))
	for _, w := range []window{o.memory, o.ring} {
		b = binary.LittleEndian.AppendUint64(b, w.address)
		b = binary.LittleEndian.AppendUint32(b, w.key)
	}
	return binary.LittleEndian.AppendUint16(b, credits)
}

// minMTU and maxMTU bound enum ibv_mtu.
const minMTU, maxMTU = 1, 5

func parseOffer(b []byte) (offer, error) {
	if len(b) != offerSize {
		return offer{}, fmt.Errorf("%w: it describes its RDMA memory in %d bytes, not in %d", ErrProtocol, len(b), offerSize)
	}
	o := offer{queue: verbs.Peer{
		Queue: binary.LittleEndian.Uint32(b), Sequence: binary.LittleEndian.Uint32(b[4:]), GID: verbs.GID(b[8:24]),
		LID: binary.LittleEndian.Uint16(b[24:]),
	}, ethernet: b[26] == 1, mtu: uint32(b[27])}
	for i, w := range []*window{&o.memory, &o.ring} {
		w.address, w.key = binary.LittleEndian.Uint64(b[28+12*i:]), binary.LittleEndian.Uint32(b[36+12*i:])
	}
	switch n := binary.LittleEndian.Uint16(b[52:]); {
	case n != credits:
		return offer{}, fmt.Errorf("%w: it has room for %d messages, not for %d", ErrProtocol, n, credits)
	case o.mtu < minMTU || o.mtu > maxMTU:
		return offer{}, fmt.Errorf("%w: the number of its MTU is %d, not %d to %d", ErrProtocol, o.mtu, minMTU, maxMTU)
	}
	return o, nil
}

// fits returns an error if the two ends cannot be connected.
func (o offer) fits(theirs offer) error {
	if o.ethernet != theirs.ethernet {
		return errors.New(
			"one end has RoCE (RDMA over Ethernet), the other one InfiniBand: choose ports of one kind with NCCL_IB_HCA")
	}
	return nil
}

// isGlobal reports whether packets need a global route header: on RoCE always, on InfiniBand between subnets.
func (o offer) isGlobal(theirs offer) bool {
	return o.ethernet || [8]byte(o.queue.GID[:8]) != [8]byte(theirs.queue.GID[:8])
}

package transport

import (
	"errors"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// The memory of a connection beside the regions, in bytes.
const (
	recordRoom = 32      // of a record, and how many messages were taken
	slotSize   = 128     // of a record and small data on their way
	smallSize  = 96      // up to which data travels beside its record
	stageSize  = 1 << 17 // of one of two buffers for data that the device does not know
	ringSize   = 4096    // of the records that the peer writes
	slotsSize  = credits * slotSize
)

// buffers is a connection's memory.
type buffers struct {
	mapping []byte
	ring    []byte // the peer writes records into it
	slots   []byte // for records on their way
	stages  [2][]byte
	in, out *verbs.Memory // the ring; the rest, which the device only reads
}

func newBuffers(domain *verbs.Domain) (_ *buffers, err error) {
	b := &buffers{}
	if b.mapping, err = verbs.Map(ringSize + slotsSize + 2*stageSize); err != nil {
		return nil, err
	}
	b.ring, b.slots = b.mapping[:ringSize], b.mapping[ringSize:][:slotsSize]
	for i := range b.stages {
		b.stages[i] = b.mapping[ringSize+slotsSize+i*stageSize:][:stageSize]
	}
	if b.in, err = domain.Register(b.ring, verbs.LocalWrite|verbs.RemoteWrite); err == nil {
		b.out, err = domain.Register(b.mapping[ringSize:], 0)
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *buffers) close() error {
	var errs []error
	for _, m := range []*verbs.Memory{b.in, b.out} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, verbs.Unmap(b.mapping))...)
}

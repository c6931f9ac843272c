package transport

import (
	"errors"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// Sizes of a connection's memory without the regions, in bytes.
const (
	recordRoom = 32 // of a record and the number of messages that were taken
	smallSize  = 96 // largest data that travels after its record
	slotSize   = recordRoom + smallSize
	ringSize   = credits * slotSize // of the messages that the peer writes, and of the own messages
	stageSize  = 1 << 17            // of each of two buffers for data that the device does not know
)

// buffers is the memory of a connection.
type buffers struct {
	mapping []byte
	ring    []byte // the peer writes records into it
	slots   []byte // for own records
	stages  [2][]byte
	in, out *verbs.Memory // in is the ring; out is the rest, which the device only reads
}

func newBuffers(domain *verbs.Domain) (_ *buffers, err error) {
	b := &buffers{}
	if b.mapping, err = verbs.Map(2*ringSize + 2*stageSize); err != nil {
		return nil, err
	}
	b.ring, b.slots = b.mapping[:ringSize], b.mapping[ringSize:][:ringSize]
	for i := range b.stages {
		b.stages[i] = b.mapping[2*ringSize+i*stageSize:][:stageSize]
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

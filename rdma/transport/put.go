package transport

import (
	"encoding/binary"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// directSize is the size from which data that the device knows is written from where it is: the write is waited for.
const directSize = 4096

// pieceSize bounds a write, in bytes.
const pieceSize = 1 << 20

// waitFor waits for what a writer needs, and returns why it will not be. Caller holds mu.
func (r *remote) waitFor(until func() bool) error {
	r.await(func() bool { return r.over != nil || r.closed || until() })
	switch {
	case r.over != nil:
		return r.over
	case r.closed && !until():
		return ErrPeerClosed
	}
	return nil
}

// post posts writes when the queue has room for them. Caller holds mu.
func (r *remote) post(writes ...verbs.Write) error {
	n := uint64(len(writes))
	if err := r.waitFor(func() bool { return r.posted+n-r.completed <= requests }); err != nil {
		return err
	}
	for i := range writes {
		r.posted++
		writes[i].ID = r.posted
	}
	writes[n-1].Signaled = true
	if err := r.queue.Post(writes...); err != nil {
		r.posted -= n
		r.fail(err)
		return err
	}
	return nil
}

// put implements carrier.
func (r *remote) put(c Completion, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.sent % credits
	if err := r.waitFor(func() bool { return r.sent-r.granted < credits && r.completed >= r.slots[at] }); err != nil {
		return err
	}
	to := verbs.Write{Remote: r.peer.memory.address + uint64(r.room.Begin(c.Slot)+c.Offset), RemoteKey: r.peer.memory.key}
	slot := r.memory.slots[at*slotSize:][:slotSize]
	var small []verbs.Write
	direct := false
	var err error
	switch {
	case len(data) == 0:
	case len(data) <= smallSize:
		copy(slot[recordRoom:], data)
		small = append(small, r.from(slot[recordRoom:][:len(data)], to))
	default:
		direct, err = r.putPieces(to, data)
	}
	if err == nil {
		r.repost(grantAt / 2)
		binary.LittleEndian.PutUint64(c.append(slot[:0])[:recordRoom][recordSize:], r.reported)
		r.sent++
		record := r.from(slot[:recordRoom], verbs.Write{
			Remote: r.peer.ring.address + at*recordRoom, RemoteKey: r.peer.ring.key, Notify: true, Immediate: c.Immediate,
		})
		err = r.post(append(small, record)...)
		r.slots[at] = r.posted
	}
	if direct {
		err = r.settle(err)
	}
	return err
}

// from returns a write of a part of the own buffers.
func (r *remote) from(part []byte, w verbs.Write) verbs.Write {
	w.Local, _ = r.memory.out.Contains(part)
	w.LocalKey, w.Size, w.Inline = r.memory.out.LocalKey, uint32(len(part)), len(part) <= r.queue.Inline
	return w
}

// putPieces writes large data: from where it is, if the device knows that, else by way of the stages. Caller holds mu.
func (r *remote) putPieces(to verbs.Write, data []byte) (direct bool, err error) {
	at, known := r.own.device.Contains(data)
	direct = known && len(data) >= directSize
	for len(data) > 0 && err == nil {
		piece := data[:min(len(data), pieceSize, int(r.device.port.MaxMessage))]
		if direct {
			to.Local, to.LocalKey, to.Size = at, r.own.device.LocalKey, uint32(len(piece))
			at += uint64(len(piece))
			err = r.post(to)
		} else {
			piece = piece[:min(len(piece), stageSize)]
			err = r.putStaged(to, piece)
		}
		to.Remote += uint64(len(piece))
		data = data[len(piece):]
	}
	return direct, err
}

// putStaged copies data to the next stage and writes it from there. Caller holds mu.
func (r *remote) putStaged(to verbs.Write, data []byte) error {
	i := r.stage
	r.stage = 1 - i
	if err := r.waitFor(func() bool { return r.completed >= r.stages[i] }); err != nil {
		return err
	}
	stage := r.memory.stages[i][:len(data)]
	copy(stage, data)
	err := r.post(r.from(stage, to))
	r.stages[i] = r.posted
	return err
}

// settle waits until the device does not read the data of writes any more. Caller holds mu.
func (r *remote) settle(err error) error {
	mine := r.posted
	complete := func() bool { return r.completed >= mine }
	if err == nil {
		err = r.waitFor(complete)
	}
	if err != nil {
		r.fail(err)
		r.awaitFor(settling, complete)
	}
	return err
}

package transport

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// directSize is the size from which data is written from its place, if the device knows that. The write then waits
// for its completion.
const directSize = 4096

// waitFor waits until a writer's condition is true, or returns why it cannot become true. Caller holds mu.
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

// hasRoom reports whether the queue has room for one more write. Caller holds mu.
func (r *remote) hasRoom() bool { return r.posted-r.completed < requests }

// post posts a write when the queue has room for it. A write that is not Signaled gets a completion of its own only if
// enough writes before it have none. Caller holds mu.
func (r *remote) post(w verbs.Write) error {
	if err := r.waitFor(r.hasRoom); err != nil {
		return err
	}
	w.Signaled = w.Signaled || r.posted-r.signaled >= signalAt
	return r.postNow(w)
}

// postNow posts a write; there must be room for it. Caller holds mu.
func (r *remote) postNow(w verbs.Write) error {
	w.ID = r.posted + 1
	if err := r.queue.Post(w); err != nil {
		r.fail(err)
		return err
	}
	r.posted++
	if w.Signaled {
		r.signaled = r.posted
	}
	return nil
}

// reaching is the time limit of the first write. The device may try for longer.
const reaching = 10 * time.Second

// reach writes nothing to the peer, and returns an error if the peer's device does not acknowledge that: a network
// may drop the packets of RDMA and carry those of TCP.
func (r *remote) reach(ctx context.Context) error {
	limit := reaching
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2) // the other half is for TCP
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	over := false
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !over { // otherwise the queue may have been closed
			r.fail(context.Cause(ctx))
		}
	})
	defer func() {
		over = true
		stop()
	}()
	if err := r.post(verbs.Write{Remote: r.peer.ring.address, RemoteKey: r.peer.ring.key, Signaled: true}); err != nil {
		return err
	}
	r.awaitFor(limit, func() bool { return r.over != nil || r.completed > 0 })
	if r.over == nil && r.completed == 0 {
		r.fail(fmt.Errorf("the peer's device has not acknowledged a write within %v", limit.Round(time.Second)))
	}
	return r.over
}

// put implements carrier.
func (r *remote) put(c Completion, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.sent % credits
	if err := r.waitFor(func() bool { return r.sent-r.granted < credits && r.completed >= r.slots[at] }); err != nil {
		return err
	}
	to := verbs.Write{
		Remote: r.peer.memory.address + uint64(r.room.Begin(c.Slot)+c.Offset), RemoteKey: r.peer.memory.key, Signaled: true,
	}
	message := c.append(r.memory.slots[at*slotSize:][:0])[:recordRoom]
	var err error
	var direct uint64 // the last write that reads the caller's data
	if len(data) <= smallSize {
		message = append(message, data...)
	} else {
		direct, err = r.putPieces(to, data)
	}
	if err == nil {
		r.repost(grantAt / 2)
		binary.LittleEndian.PutUint64(message[recordSize:], r.reported)
		r.sent++
		err = r.post(r.from(message, verbs.Write{
			Remote: r.peer.ring.address + at*slotSize, RemoteKey: r.peer.ring.key, Notify: true, Immediate: c.Immediate,
		}))
		r.slots[at] = r.posted
	}
	if direct > 0 {
		err = r.settle(direct, err)
	}
	return err
}

// from returns w with a part of the own buffers as its data.
func (r *remote) from(part []byte, w verbs.Write) verbs.Write {
	w.Local, _ = r.memory.out.Contains(part)
	w.LocalKey, w.Size, w.Inline = r.memory.out.LocalKey, uint32(len(part)), len(part) <= r.queue.Inline
	return w
}

// putPieces writes large data: from its place, if the device knows that; otherwise through the stages. last is the
// last write that reads the data at its place; 0: none. Caller holds mu.
func (r *remote) putPieces(to verbs.Write, data []byte) (last uint64, err error) {
	at, known := r.own.device.Contains(data)
	direct := known && len(data) >= directSize
	for len(data) > 0 && err == nil {
		piece := data[:min(len(data), r.device.port.largest())]
		if direct {
			to.Local, to.LocalKey, to.Size = at, r.own.device.LocalKey, uint32(len(piece))
			at += uint64(len(piece))
			if err = r.post(to); err == nil {
				last = r.posted
			}
		} else {
			piece = piece[:min(len(piece), stageSize)]
			err = r.putStaged(to, piece)
		}
		to.Remote += uint64(len(piece))
		data = data[len(piece):]
	}
	return last, err
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

// settle waits until a write is complete, also after an error: then the device does not read the data any more.
// Caller holds mu.
func (r *remote) settle(write uint64, err error) error {
	complete := func() bool { return r.completed >= write }
	if err == nil {
		err = r.waitFor(complete)
	}
	if err != nil {
		r.fail(err)
		r.awaitFor(settling, complete)
	}
	return err
}

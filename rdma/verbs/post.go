package verbs

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"
)

// Write is a request to write into the memory of the peer.
type Write struct {
	ID        uint64 // of its completion
	Local     uint64 // address; memory that is registered, or that can be read at once if Inline
	Size      uint32 // in bytes, at most the port's MaxMessage
	LocalKey  uint32
	Remote    uint64
	RemoteKey uint32
	Immediate uint32 // for the peer, if Notify
	Notify    bool   // it takes one of the peer's receives, and completes it
	Signaled  bool   // it has a completion here, which means that all writes before it are complete, too
	Inline    bool   // the memory may be changed when Post returns
}

// Values of infiniband/verbs.h.
const (
	opcodeWrite, opcodeWriteImmediate = 0, 1
	flagSignaled, flagInline          = 2, 8
	completionReceive                 = 1 << 7 // IBV_WC_RECV, a bit
)

// maxPosted is the number of writes that Post takes.
const maxPosted = batch

// Post posts writes, which are executed in their order. After an error some of them may be posted: end the connection.
func (q *Queue) Post(writes ...Write) error {
	if len(writes) > maxPosted {
		return fmt.Errorf("%d writes are more than %d, which an RDMA device is given at once", len(writes), maxPosted)
	}
	m := q.memory
	for i, w := range writes {
		m.elements[i] = element{Address: w.Local, Length: w.Size, Key: w.LocalKey}
		r := sendRequest{ID: w.ID, Opcode: opcodeWrite, RemoteAddress: w.Remote, RemoteKey: w.RemoteKey}
		if w.Size > 0 {
			r.Elements, r.Count = uintptr(unsafe.Pointer(&m.elements[i])), 1
		}
		if w.Notify {
			r.Opcode = opcodeWriteImmediate
			binary.BigEndian.PutUint32(r.Immediate[:], w.Immediate)
		}
		if w.Signaled {
			r.Flags |= flagSignaled
		}
		if w.Inline {
			r.Flags |= flagInline
		}
		if i < len(writes)-1 {
			r.Next = uintptr(unsafe.Pointer(&m.writes[i+1]))
		}
		m.writes[i] = r
	}
	return q.posted("a write", call(at[contextHead](q.device.context).PostSend, q.handle,
		uintptr(unsafe.Pointer(&m.writes[0])), uintptr(unsafe.Pointer(&m.rejected[0]))))
}

// PostReceives posts receives without memory: the peer's writes with an immediate take them.
func (q *Queue) PostReceives(n int) error {
	m := q.memory
	first := uintptr(unsafe.Pointer(&m.receives[MaxReceives-n])) // the chain ends with the last one
	return q.posted("receives",
		call(at[contextHead](q.device.context).PostReceive, q.handle, first, uintptr(unsafe.Pointer(&m.rejected[1]))))
}

func (q *Queue) posted(what string, result uintptr) error {
	if n := int32(result); n != 0 {
		return fmt.Errorf("post %s to %s: %w", what, q.device.Name, syscall.Errno(max(n, -n)))
	}
	return nil
}

// Completion is the end of a request.
type Completion struct {
	ID        uint64 // of a write
	Received  bool   // a write of the peer with an immediate
	Length    uint32 // of the peer's write, in bytes
	Immediate uint32 // that came with it
	Status    Status // the other fields but ID are of no use if it is not Success
}

// Status is enum ibv_wc_status: how a request has ended.
type Status uint32

// The values that mean something to a user of connections that only write.
const (
	Success         Status = 0
	Flushed         Status = 5  // the connection had ended before
	RemoteAccess    Status = 10 // the peer's device refused the key or the place
	RetriesExceeded Status = 12 // the peer's device did not answer
)

// Poll returns completions in the slice that it is given, at most 16.
func (q *Queue) Poll(into []Completion) ([]Completion, error) {
	m := q.memory
	room := min(len(m.completions), cap(into))
	n := int32(
		call(at[contextHead](q.device.context).PollCQ, q.cq, uintptr(room), uintptr(unsafe.Pointer(&m.completions[0]))))
	if n < 0 || int(n) > room {
		return nil, fmt.Errorf("poll the completion queue of the RDMA device %s: libibverbs returns %d", q.device.Name, n)
	}
	into = into[:n]
	for i := range into {
		c := &m.completions[i]
		into[i] = Completion{
			ID: c.ID, Received: c.Opcode&completionReceive != 0, Length: c.Length,
			Immediate: binary.BigEndian.Uint32(c.Immediate[:]), Status: Status(c.Status),
		}
	}
	return into, nil
}

package verbs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// QueueConfig describes a queue pair.
type QueueConfig struct {
	Port            int
	Sends, Receives int // requests that can be outstanding; at most MaxReceives
	Inline          int // bytes of an inline write; a device may have less
}

// Queue is a reliable connection: a queue pair with one completion queue for sends and receives. One goroutine at a
// time calls Post, and one at a time Poll, Arm or Wait. Close is called when no other call is in progress. The other
// methods may be called from any goroutine.
type Queue struct {
	Number uint32
	Inline int // the size up to which a write can be inline

	library             *Library
	device              *Device
	port                int
	channel, cq, handle uintptr
	ready               *os.File // the channel's descriptor, for Go's poller
	mapping             []byte
	memory              *queueMemory // in mapping
	taken               uint32       // events that have not been acknowledged
}

// batch is the number of writes that are posted, and of completions that are polled, at once.
const batch = 16

// MaxReceives bounds the receives of a queue pair.
const MaxReceives = 128

// queueMemory is what the library reads and writes.
type queueMemory struct {
	writes      [batch]sendRequest
	elements    [batch]element
	completions [batch]workCompletion
	receives    [MaxReceives]receiveRequest // a chain
	rejected    [2]uintptr                  // by post_send and by post_recv
	event       [2]uintptr                  // of ibv_get_cq_event: the queue and its context
}

// Values of infiniband/verbs.h.
const (
	queueTypeRC = 2 // IBV_QPT_RC

	stateInit  = 1 // IBV_QPS_INIT
	stateRTR   = 2 // IBV_QPS_RTR, ready to receive
	stateRTS   = 3 // IBV_QPS_RTS, ready to send
	stateError = 6 // IBV_QPS_ERR

	maskState, maskAccess, maskPkeyIndex, maskPort = 1 << 0, 1 << 3, 1 << 4, 1 << 5
	maskAddress, maskMTU, maskTimeout              = 1 << 7, 1 << 8, 1 << 9
	maskRetries, maskNotReadyRetries, maskReceive  = 1 << 10, 1 << 11, 1 << 12
	maskMaxReads, maskNotReadyTimer, maskSend      = 1 << 13, 1 << 15, 1 << 16
	maskMaxPeerReads, maskDestination              = 1 << 17, 1 << 20
)

// NewQueue makes a queue pair in the state INIT: receives can be posted.
func (p *Domain) NewQueue(cfg QueueConfig) (_ *Queue, err error) {
	q := &Queue{library: p.device.library, device: p.device, port: cfg.Port}
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a queue pair of the RDMA device %s: %w", p.device.Name, errors.Join(err, q.Close()))
		}
	}()
	if q.mapping, err = Map(int(unsafe.Sizeof(*q.memory))); err != nil {
		return nil, err
	}
	q.memory = at[queueMemory](addressOf(q.mapping))
	for i := range q.memory.receives[1:] {
		q.memory.receives[i].Next = uintptr(unsafe.Pointer(&q.memory.receives[i+1]))
	}
	l := q.library
	if q.channel, err = l.pointer(createChannel, p.device.context); err != nil {
		return nil, fmt.Errorf("make the completion channel: %w", err)
	}
	if err := q.poller(); err != nil {
		return nil, err
	}
	if q.cq, err = l.pointer(createCQ, p.device.context, uintptr(cfg.Sends+cfg.Receives+1), 0, q.channel, 0); err != nil {
		return nil, fmt.Errorf("make the completion queue: %w", err)
	}
	if err := q.create(p, cfg); err != nil {
		return nil, err
	}
	err = q.modify(queueRecord{State: stateInit, Port: uint8(cfg.Port), Access: uint32(LocalWrite | RemoteWrite)},
		maskState|maskPkeyIndex|maskPort|maskAccess)
	if err != nil {
		return nil, fmt.Errorf("bring the queue pair to the state INIT: %w", err)
	}
	return q, nil
}

// poller gives the channel's descriptor to Go's poller: a goroutine that waits for a completion holds no thread.
// The descriptor is a duplicate, because both Go and the library close theirs.
func (q *Queue) poller() error {
	fd := at[channelHead](q.channel).File
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(own, true)
		q.ready = os.NewFile(uintptr(own), "completions")
	}
	if err != nil {
		return fmt.Errorf("copy the descriptor of the completion channel: %w", err)
	}
	return nil
}

// create makes the queue pair, without inline writes where the device has none.
func (q *Queue) create(p *Domain, cfg QueueConfig) error {
	l := q.library
	var err error
	for _, inline := range []int{cfg.Inline, 0} {
		init := queueInit{SendCQ: q.cq, ReceiveCQ: q.cq, Type: queueTypeRC, Capacity: capacity{
			Sends: uint32(cfg.Sends), Receives: uint32(cfg.Receives), SendElements: 1, ReceiveElements: 1,
			Inline: uint32(inline),
		}}
		var made queueInit
		made, err = query[queueInit](func(address uintptr) (err error) {
			*at[queueInit](address) = init
			q.handle, err = l.pointer(createQueue, p.handle, address)
			return err
		})
		if err == nil {
			q.Number, q.Inline = at[queueHead](q.handle).Number, min(cfg.Inline, int(made.Capacity.Inline))
			return nil
		}
	}
	return err
}

// modify changes attributes of the queue pair.
func (q *Queue) modify(attr queueRecord, mask uintptr) error {
	_, err := query[queueRecord](func(address uintptr) error {
		*at[queueRecord](address) = attr
		return q.library.status(modifyQueue, q.handle, address, mask)
	})
	return err
}

// Path is the way to a peer's queue pair.
type Path struct {
	MTU      uint32 // as enum ibv_mtu
	Sequence uint32 // of the first packet that this end sends, 24 bits
	GIDIndex int    // of the own port
	IsGlobal bool   // with a GRH: RoCE, and between InfiniBand subnets
	Peer     Peer
	Timeout  int // exponent: an acknowledgement is waited for 4.096 µs * 2^Timeout; 0 is for ever, 31 the maximum
	Retries  int // after that time, up to 7
	Class    int // traffic class of the GRH
	Level    int // service level
}

// Peer is the other end's part of a path.
type Peer struct {
	Queue    uint32
	Sequence uint32
	GID      GID
	LID      uint16
}

const (
	notReadyTimer   = 12 // 0.64 ms; IBTA 9.7.5.2.8
	notReadyForever = 7
	hops            = 64
)

// Connect brings the queue pair to RTS, where it sends and receives. A peer that has no receive posted is tried again
// for ever.
func (q *Queue) Connect(path Path) error {
	to := queueRecord{
		State: stateRTR, MTU: path.MTU, ReceiveNumber: path.Peer.Sequence, Destination: path.Peer.Queue, MaxPeerReads: 1,
		NotReadyTimer: notReadyTimer,
		Address:       address{LID: path.Peer.LID, ServiceLevel: uint8(path.Level), Port: uint8(q.port)},
	}
	if path.IsGlobal {
		to.Address.IsGlobal, to.Address.GID, to.Address.SourceIndex = 1, path.Peer.GID, uint8(path.GIDIndex)
		to.Address.HopLimit, to.Address.TrafficClass = hops, uint8(path.Class)
	}
	if err := q.modify(to, maskState|maskAddress|maskMTU|maskDestination|maskReceive|maskMaxPeerReads|
		maskNotReadyTimer); err != nil {
		return fmt.Errorf("connect to the queue pair of %s (RTR): %w", path.Peer.GID.Address(), err)
	}
	from := queueRecord{
		State: stateRTS, SendNumber: path.Sequence, Timeout: uint8(path.Timeout), Retries: uint8(path.Retries),
		NotReadyRetries: notReadyForever, MaxReads: 1,
	}
	if err := q.modify(from, maskState|maskSend|maskTimeout|maskRetries|maskNotReadyRetries|maskMaxReads); err != nil {
		return fmt.Errorf("connect to the queue pair of %s (RTS): %w", path.Peer.GID.Address(), err)
	}
	return nil
}

// Fail brings the queue pair to the state ERR: outstanding requests complete with an error, and the device does not
// read the memory of a write after its completion.
func (q *Queue) Fail() error {
	if err := q.modify(queueRecord{State: stateError}, maskState); err != nil {
		return fmt.Errorf("end a queue pair of the RDMA device %s: %w", q.device.Name, err)
	}
	return nil
}

// Close ends the queue pair and frees what belongs to it.
func (q *Queue) Close() error {
	l := q.library
	var errs []error
	end := func(what string, f function, handle *uintptr) {
		if *handle == 0 {
			return
		}
		if err := l.status(f, *handle); err != nil {
			errs = append(errs, fmt.Errorf("close %s of %s: %w", what, q.device.Name, err))
		}
		*handle = 0
	}
	if q.ready != nil {
		errs = append(errs, q.ready.Close())
		q.ready = nil
	}
	end("a queue pair", destroyQueue, &q.handle)
	if q.taken > 0 { // the completion queue waits for it
		l.call(acknowledgeEvents, q.cq, uintptr(q.taken))
		q.taken = 0
	}
	end("a completion queue", destroyCQ, &q.cq)
	end("a completion channel", destroyChannel, &q.channel)
	if q.mapping != nil {
		errs = append(errs, Unmap(q.mapping))
		q.mapping, q.memory = nil, nil
	}
	return errors.Join(errs...)
}

// Wake ends the call of Wait that is in progress, or else the next one.
func (q *Queue) Wake() { _ = q.ready.SetReadDeadline(time.Now()) } // the descriptor is the poller's, and open

// ErrWoken is the error of Wait after Wake.
var ErrWoken = os.ErrDeadlineExceeded

// Wait waits for the event that the queue was armed for.
func (q *Queue) Wait() error {
	raw, err := q.ready.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for completions of the RDMA device %s: %w", q.device.Name, err)
	}
	l, event := q.library, uintptr(unsafe.Pointer(&q.memory.event[0]))
	var failure error
	err = raw.Read(func(uintptr) bool {
		// It reads the descriptor, which does not block, and tells the device's library.
		failure = syscall.EINTR
		for errors.Is(failure, syscall.EINTR) {
			failure = l.negative(getEvent, q.channel, event, event+wordSize)
		}
		return !errors.Is(failure, syscall.EAGAIN)
	})
	if err == nil {
		err = failure
	}
	if errors.Is(err, ErrWoken) { // one more Wake meanwhile is for this return, too
		err = errors.Join(err, q.ready.SetReadDeadline(time.Time{}))
	}
	if err != nil {
		return fmt.Errorf("wait for completions of the RDMA device %s: %w", q.device.Name, err)
	}
	if q.taken++; q.taken == ackEvery {
		l.call(acknowledgeEvents, q.cq, ackEvery)
		q.taken = 0
	}
	return nil
}

// ackEvery is the number of events that are acknowledged together: each time takes a lock.
const ackEvery = 64

// Arm asks for an event at the next completion. A completion that came before causes no event, so Poll must be called
// between Arm and Wait.
func (q *Queue) Arm() error {
	if n := int32(call(at[contextHead](q.device.context).Notify, q.cq, 0)); n != 0 {
		return fmt.Errorf("arm the completion queue of the RDMA device %s: %w", q.device.Name, syscall.Errno(max(n, -n)))
	}
	return nil
}

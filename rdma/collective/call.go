package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/rdma/reduce"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// Kind is what a call does.
type Kind uint32

// The kinds of calls. A barrier is an all-reduce of nothing.
const (
	AllReduce Kind = iota
	Broadcast
	AllGather
	// Exchange is an all-reduce on one host whose vectors the programs combine: its result is the vectors of all
	// ranks. With two ranks that takes as many reads and writes of memory as to combine parts here and to copy them
	// there, and one wait for the other rank less.
	Exchange
)

var kinds = [...]string{
	AllReduce: "all_reduce", Broadcast: "broadcast", AllGather: "all_gather", Exchange: "all_reduce",
}

// Call is one operation. All ranks make the same calls in the same order.
type Call struct {
	Kind Kind
	Type reduce.Type // of AllReduce and Exchange
	Op   reduce.Op   // of AllReduce and Exchange
	Root int         // of Broadcast: the rank whose vector all get
	Size int64       // of each rank's vector, in bytes
	// Form is a checksum of what the program's vectors are: types and shapes. It is the same on all ranks.
	Form uint32
}

// String describes a call, such as "all_reduce(sum) of 1024 float32".
func (c Call) String() string {
	switch c.Kind {
	case AllReduce, Exchange:
		if c.Size == 0 {
			return "barrier"
		}
		return fmt.Sprintf("all_reduce(%s) of %d %s", c.Op, c.Size/int64(c.Type.Size()), c.Type)
	case Broadcast:
		return fmt.Sprintf("broadcast of %d bytes from rank %d", c.Size, c.Root)
	}
	return fmt.Sprintf("%s of %d bytes", kinds[c.Kind], c.Size)
}

// callSize is the size of a description.
const callSize = 4 * 8

func (c Call) encode() []byte {
	var b []byte
	for _, v := range []uint64{
		uint64(c.Kind), uint64(c.Type)<<32 | uint64(c.Op), uint64(c.Form)<<32 | uint64(uint32(c.Root)), uint64(c.Size),
	} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// decodeCall reads the description that a peer sent. What it cannot be is seen by the comparison with the own call.
func decodeCall(b []byte) Call {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	c := Call{
		Kind: Kind(word(0)), Type: reduce.Type(word(1) >> 32), Op: reduce.Op(uint32(word(1))), Root: int(uint32(word(2))),
		Size: int64(word(3)), Form: uint32(word(2) >> 32),
	}
	if int(c.Kind) >= len(kinds) || !c.Type.Valid() || !c.Op.Valid() {
		return Call{Size: -1}
	}
	return c
}

// ErrInvalid is the error of a call that the program's side of a collective call never makes: no program causes it.
var ErrInvalid = errors.New("an invalid call")

// check returns why a call cannot be made.
func (c Call) check(ranks, hosts int, slotSize int64) error {
	size := c.Size
	if c.Kind == AllGather {
		size *= int64(ranks)
	}
	switch {
	case int(c.Kind) >= len(kinds) || !c.Type.Valid() || !c.Op.Valid():
		return fmt.Errorf("%w: kind %d, type %d or operation %d is unknown", ErrInvalid, c.Kind, c.Type, c.Op)
	case c.Size < 0 || c.Size > slotSize || size > slotSize: // the product may overflow
		return fmt.Errorf("%w: %s: the vectors have more bytes than the memory of a collective call has room for, %d",
			ErrInvalid, c, slotSize)
	case c.Kind == Exchange && hosts != 1:
		return fmt.Errorf("%w: %s: the programs combine the vectors themselves only on one host, and the ranks are on %d",
			ErrInvalid, c, hosts)
	case (c.Kind == AllReduce || c.Kind == Exchange) && c.Size%int64(c.Type.Size()) != 0:
		return fmt.Errorf("%w: %s: the vector has %d bytes, and its last element would be cut: each has %d", ErrInvalid, c,
			c.Size, c.Type.Size())
	case c.Kind == Broadcast && (c.Root < 0 || c.Root >= ranks):
		return fmt.Errorf("%s: root must be the rank of a task, from 0 to %d", c, ranks-1)
	}
	return nil
}

// part returns the piece of a vector of the given size that is the i-th of n, in whole elements.
func part(size int64, element, i, n int) (begin, end int64) {
	elements := size / int64(element)
	return elements * int64(i) / int64(n) * int64(element), elements * int64(i+1) / int64(n) * int64(element)
}

// Part is a piece of a result: so many bytes of a rank's slot. The pieces in their order are the result.
type Part struct {
	Rank   int
	Slot   int
	Offset int64
	Size   int64
}

// LateError is the error of a call whose time is over.
type LateError struct {
	Call  Call
	Waits []string // the ranks for which this rank waited: one of them may have waited for others
	Err   error    // why the time is over
}

func (e *LateError) Error() string {
	if len(e.Waits) == 0 {
		return fmt.Sprintf("%s: %v", e.Call, e.Err)
	}
	return fmt.Sprintf("%s: %s did not arrive: %v", e.Call, strings.Join(e.Waits, ", "), e.Err)
}

func (e *LateError) Unwrap() error { return e.Err }

// LostError is the error of a call where the link to a rank has ended: the rank has, or the connection broke.
type LostError struct {
	Name string
	Err  error // of the link
}

func (e *LostError) Error() string {
	if errors.Is(e.Err, transport.ErrProtocol) {
		return fmt.Sprintf("%s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("%s has left the group: %v", e.Name, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

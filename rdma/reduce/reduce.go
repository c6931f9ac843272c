// Package reduce combines vectors of numbers, element by element.
package reduce

import (
	"errors"
	"fmt"
	"unsafe"
)

// Type is the type of a vector's elements, in the byte order of this machine.
type Type int

// The types, under the names that NumPy gives them.
const (
	Float32 Type = iota
	Float64
	Float16
	BFloat16
	Int32
	Int64
)

var types = [...]struct {
	name string
	size int
}{
	Float32: {"float32", 4}, Float64: {"float64", 8}, Float16: {"float16", 2}, BFloat16: {"bfloat16", 2},
	Int32: {"int32", 4}, Int64: {"int64", 8},
}

// ParseType returns the type of a name, such as "float32".
func ParseType(name string) (Type, error) {
	for t, about := range types {
		if about.name == name {
			return Type(t), nil
		}
	}
	return 0, fmt.Errorf("arrays of type %q cannot be reduced: convert them to float16, bfloat16, float32, float64, "+
		"int32 or int64", name)
}

// String returns NumPy's name of the type.
func (t Type) String() string { return types[t].name }

// Valid is whether t is one of the types.
func (t Type) Valid() bool { return t >= 0 && int(t) < len(types) }

// Size returns the size of an element in bytes.
func (t Type) Size() int { return types[t].size }

// Op combines two elements.
type Op int

// The operations.
const (
	Sum Op = iota
	Min
	Max
	Mean // the sum, which the program divides
)

var ops = [...]string{Sum: "sum", Min: "min", Max: "max", Mean: "mean"}

// ParseOp returns the operation of a name.
func ParseOp(name string) (Op, error) {
	for op, text := range ops {
		if text == name {
			return Op(op), nil
		}
	}
	return 0, fmt.Errorf("there is no op %q to reduce arrays with: use sum, mean, min or max", name)
}

// Valid is whether o is one of the operations.
func (o Op) Valid() bool { return o >= 0 && int(o) < len(ops) }

// String returns the name of the operation.
func (o Op) String() string { return ops[o] }

// blockBytes is the size of the part of a vector that is combined at once: it stays in the processor's first cache.
const blockBytes = 8 << 10

// ErrVectors is the error of vectors that Into cannot combine: its caller has made them so.
var ErrVectors = errors.New("vectors cannot be combined")

// Into sets dst to the combination of the sources, in their order: every caller with the same sources gets the same
// bits. All vectors have the same length, which is a multiple of the element's size, and are aligned to it. dst may
// be one of the sources. Half-precision elements are added in float32 and rounded once.
func Into(dst []byte, sources [][]byte, t Type, op Op) error {
	if len(sources) == 0 {
		return fmt.Errorf("%w: there is none to make %d bytes of", ErrVectors, len(dst))
	}
	for _, v := range append([][]byte{dst}, sources...) {
		switch {
		case len(v) != len(dst) || len(v)%t.Size() != 0:
			return fmt.Errorf("%w: they have %d and %d bytes of type %s", ErrVectors, len(dst), len(v), t)
		case len(v) > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(v)))%uintptr(t.Size()) != 0:
			return fmt.Errorf("%w: one does not begin at a multiple of %d bytes", ErrVectors, t.Size())
		}
	}
	switch t {
	case Float32:
		numbers[float32](dst, sources, op)
	case Float64:
		numbers[float64](dst, sources, op)
	case Int32:
		numbers[int32](dst, sources, op)
	case Int64:
		numbers[int64](dst, sources, op)
	case Float16:
		halves(dst, sources, op, float16{})
	case BFloat16:
		halves(dst, sources, op, bfloat16{})
	}
	return nil
}

type number interface {
	int32 | int64 | float32 | float64
}

// view returns the elements of a vector.
func view[T any](v []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(v))), len(v)/int(unsafe.Sizeof(zero)))
}

func numbers[T number](dst []byte, sources [][]byte, op Op) {
	out := view[T](dst)
	in := make([][]T, len(sources))
	for i, s := range sources {
		in[i] = view[T](s)
	}
	var block [blockBytes / 8]T // dst may be a source that is still to be read
	var now [4][]T
	for begin := 0; begin < len(out); begin += len(block) {
		end := min(begin+len(block), len(out))
		first, more := in[0][begin:end], in[1:]
		for len(more) > 0 {
			n := 1
			if (op == Sum || op == Mean) && len(more) >= 3 {
				n = 3
			}
			now[0] = first
			for i, s := range more[:n] {
				now[i+1] = s[begin:end]
			}
			more, first = more[n:], block[:end-begin]
			if len(more) == 0 { // each element is written after all have been read
				first = out[begin:end]
			}
			combine(first, now[:n+1], op)
		}
		if len(in) == 1 {
			copy(out[begin:end], first)
		}
	}
}

// combine sets each element of out to the combination of those of two vectors, or to the sum of two or four, in their
// order. All have one length, and out may be one of them.
func combine[T number](out []T, in [][]T, op Op) {
	a, b := in[0][:len(out)], in[1][:len(out)]
	switch {
	case op == Min:
		for i, v := range b {
			out[i] = lesser(a[i], v)
		}
	case op == Max:
		for i, v := range b {
			out[i] = greater(a[i], v)
		}
	default:
		sum(out, in)
	}
}

// sum is where the time goes.
func sum[T number](out []T, in [][]T) {
	done := 0
	if floats, ok := any(out).([]float32); ok {
		done = sumVectors(floats, any(in).([][]float32)...)
	}
	out, a, b := out[done:], in[0][done:], in[1][done:]
	if len(in) == 2 {
		for i := range out {
			out[i] = a[i] + b[i]
		}
		return
	}
	c, d := in[2][done:], in[3][done:]
	for i := range out {
		out[i] = a[i] + b[i] + c[i] + d[i]
	}
}

// lesser and greater return the smaller and the larger one; NaN, as NumPy's minimum does, where one is NaN.
func lesser[T number](a, b T) T {
	if a != a || a < b {
		return a
	}
	return b
}

func greater[T number](a, b T) T {
	if a != a || a > b {
		return a
	}
	return b
}

// halves combines half-precision elements, converted a block at a time: calls for each element would take most of
// the time.
func halves(dst []byte, sources [][]byte, op Op, c conversion) {
	out := view[uint16](dst)
	in := make([][]uint16, len(sources))
	for i, s := range sources {
		in[i] = view[uint16](s)
	}
	var block, next [blockBytes / 8]float32
	for begin := 0; begin < len(out); begin += len(block) {
		end := min(begin+len(block), len(out))
		acc, more := block[:end-begin], next[:end-begin]
		c.decode(acc, in[0][begin:end])
		for _, s := range in[1:] {
			c.decode(more, s[begin:end])
			combine(acc, [][]float32{acc, more}, op)
		}
		c.encode(out[begin:end], acc)
	}
}

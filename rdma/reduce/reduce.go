// Package reduce combines vectors of numbers, element by element.
package reduce

import (
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
}{Float32: {"float32", 4}, Float64: {"float64", 8}, Float16: {"float16", 2}, BFloat16: {"bfloat16", 2}, Int32: {"int32", 4}, Int64: {"int64", 8}}

// ParseType returns the type of a name, such as "float32".
func ParseType(name string) (Type, error) {
	for t, about := range types {
		if about.name == name {
			return Type(t), nil
		}
	}
	return 0, fmt.Errorf("elements of type %q cannot be reduced: float16, bfloat16, float32, float64, int32 and int64 can", name)
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
)

var ops = [...]string{Sum: "sum", Min: "min", Max: "max"}

// ParseOp returns the operation of a name.
func ParseOp(name string) (Op, error) {
	for op, text := range ops {
		if text == name {
			return Op(op), nil
		}
	}
	return 0, fmt.Errorf("op %q is not known: sum, min and max are", name)
}

// Valid is whether o is one of the operations.
func (o Op) Valid() bool { return o >= 0 && int(o) < len(ops) }

// String returns the name of the operation.
func (o Op) String() string { return ops[o] }

// blockBytes is the size of the part of a vector that is combined at once: it stays in the processor's first cache.
const blockBytes = 8 << 10

// Into sets dst to the combination of the sources, in their order: every caller with the same sources gets the same
// bits. All vectors have the same length, which is a multiple of the element's size, and are aligned to it. dst may
// be one of the sources. Half-precision elements are added in float32 and rounded once.
func Into(dst []byte, sources [][]byte, t Type, op Op) error {
	if len(sources) == 0 {
		return fmt.Errorf("reduce %d bytes of no source", len(dst))
	}
	for _, v := range append([][]byte{dst}, sources...) {
		switch {
		case len(v) != len(dst) || len(v)%t.Size() != 0:
			return fmt.Errorf("reduce vectors of %d and %d bytes as %s", len(dst), len(v), t)
		case len(v) > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(v)))%uintptr(t.Size()) != 0:
			return fmt.Errorf("reduce a vector that is not aligned to %d bytes", t.Size())
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
	var block [blockBytes / 8]T
	for begin := 0; begin < len(out); begin += len(block) {
		end := min(begin+len(block), len(out))
		acc := block[:end-begin]
		copy(acc, in[0][begin:end])
		for _, s := range in[1:] {
			combine(acc, s[begin:end], op)
		}
		copy(out[begin:end], acc)
	}
}

// combine sets each element of acc to its combination with that of s, which is as long.
func combine[T number](acc, s []T, op Op) {
	s = s[:len(acc)]
	switch op {
	case Sum:
		add(acc, s)
	case Min:
		for i, v := range s {
			acc[i] = lesser(acc[i], v)
		}
	case Max:
		for i, v := range s {
			acc[i] = greater(acc[i], v)
		}
	}
}

// add is the loop that takes the time: four elements at a step, without checks of the index.
func add[T number](acc, s []T) {
	for len(acc) >= 4 && len(s) >= 4 {
		a, b := acc[:4:4], s[:4:4]
		a[0] += b[0]
		a[1] += b[1]
		a[2] += b[2]
		a[3] += b[3]
		acc, s = acc[4:], s[4:]
	}
	for i, v := range s {
		acc[i] += v
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
			combine(acc, more, op)
		}
		c.encode(out[begin:end], acc)
	}
}

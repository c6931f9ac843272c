package aggregated

import (
	"encoding/binary"
	"math"
	"slices"
)

// object is one of a stream of Java's serialization.
type object struct {
	fields map[string]any // of its class and those above: int64, string, *object, []any, nil
	extra  []any          // what its class wrote besides: objects, and []byte between them
}

// class is what a stream says of one.
type class struct {
	flags  byte
	fields []field
	above  *class
}

type field struct {
	kind byte
	name string
}

// Tags of a stream.
const (
	tagNull      = 0x70
	tagReference = 0x71
	tagClass     = 0x72
	tagObject    = 0x73
	tagString    = 0x74
	tagArray     = 0x75
	tagBlock     = 0x77
	tagEnd       = 0x78
	tagLongBlock = 0x7a
	tagEnum      = 0x7e
)

// Flags of a class.
const (
	writesMore   = 1
	serializable = 2
)

// Bounds of a stream.
const (
	firstHandle = 0x7e0000
	deepest     = 40
)

// javaReader reads a stream that is in memory. What is wrong with it is panicked with, which
// ends in readJava.
type javaReader struct {
	left    []byte
	handles []any
	depth   int
}

// broken is why a stream cannot be read; it is panicked with, within readJava alone.
type broken struct{ error }

func fail(format string, args ...any) { panic(broken{corrupt(format, args...)}) }

// readJava reads the one object that a stream holds.
func readJava(stream []byte) (root *object, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case broken:
			err = p.error
		default:
			panic(p)
		}
	}()
	r := &javaReader{left: stream}
	if r.number(4) != 0xaced0005 {
		fail("its index is no stream of Java's")
	}
	root, ok := r.content().(*object)
	if !ok {
		fail("its index holds no object")
	}
	return root, nil
}

func (r *javaReader) take(n int) []byte {
	if n < 0 || n > len(r.left) {
		fail("its index ends too soon")
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *javaReader) byte() byte { return r.take(1)[0] }

func (r *javaReader) number(bytes int) uint64 {
	var b [8]byte
	copy(b[8-bytes:], r.take(bytes))
	return binary.BigEndian.Uint64(b[:])
}

func (r *javaReader) word() string { return string(r.take(int(r.number(2)))) }

// handle keeps what the stream may refer to; at is set where it is made in steps.
func (r *javaReader) handle(what any) { r.handles = append(r.handles, what) }

func (r *javaReader) reference() any {
	n := int64(r.number(4)) - firstHandle
	if n < 0 || n >= int64(len(r.handles)) {
		fail("its index refers to nothing")
	}
	return r.handles[n]
}

// content reads whatever comes next; a class where one is described.
func (r *javaReader) content() any {
	if r.depth++; r.depth > deepest {
		fail("its index is too deep")
	}
	defer func() { r.depth-- }()
	switch tag := r.byte(); tag {
	case tagNull:
		return nil
	case tagReference:
		return r.reference()
	case tagClass:
		return r.class()
	case tagObject:
		return r.object()
	case tagString:
		s := r.word()
		r.handle(s)
		return s
	case tagArray:
		return r.array()
	case tagEnum:
		r.classOf()
		at := len(r.handles)
		r.handle(nil)
		name := r.content()
		r.handles[at] = name
		return name
	case tagBlock:
		return r.take(int(r.byte()))
	case tagLongBlock:
		n := r.number(4)
		if n > math.MaxInt32 {
			fail("a block of %d bytes", n)
		}
		return r.take(int(n))
	default:
		fail("its index holds what is not known here (%#x)", tag)
	}
	return nil
}

// class reads the description of one.
func (r *javaReader) class() *class {
	c := &class{}
	r.word()
	r.number(8)
	r.handle(c)
	c.flags = r.byte()
	for range r.number(2) {
		f := field{kind: r.byte(), name: r.word()}
		if f.kind == 'L' || f.kind == '[' {
			r.content() // of which class it is
		}
		c.fields = append(c.fields, f)
	}
	r.rest()
	c.above = r.classOf()
	return c
}

// classOf reads a class, or a reference to one.
func (r *javaReader) classOf() *class {
	switch c := r.content().(type) {
	case nil:
		return nil
	case *class:
		return c
	}
	fail("its index has another thing for a class")
	return nil
}

// rest reads what a class wrote besides.
func (r *javaReader) rest() (found []any) {
	for len(r.left) > 0 && r.left[0] != tagEnd {
		found = append(found, r.content())
	}
	r.byte()
	return found
}

func (r *javaReader) object() *object {
	c := r.classOf()
	o := &object{fields: map[string]any{}}
	r.handle(o)
	var classes []*class // the lowest first
	for ; c != nil; c = c.above {
		if classes = append(classes, c); len(classes) > deepest {
			fail("its index has a class without end")
		}
	}
	for _, c := range slices.Backward(classes) {
		if c.flags&serializable == 0 {
			fail("its index holds an object that writes itself")
		}
		for _, f := range c.fields {
			o.fields[f.name] = r.value(f.kind)
		}
		if c.flags&writesMore != 0 {
			o.extra = append(o.extra, r.rest()...)
		}
	}
	return o
}

func (r *javaReader) value(kind byte) any {
	switch kind {
	case 'B', 'Z':
		return int64(r.number(1))
	case 'S', 'C':
		return int64(r.number(2))
	case 'I', 'F':
		return int64(int32(r.number(4)))
	case 'J', 'D':
		return int64(r.number(8))
	case 'L', '[':
		return r.content()
	}
	fail("its index has a field of no kind")
	return nil
}

// array reads one of objects; no other is needed.
func (r *javaReader) array() any {
	r.classOf()
	at := len(r.handles)
	r.handle(nil)
	n := r.number(4)
	if n > uint64(len(r.left)) {
		fail("its index ends too soon")
	}
	var all []any
	for range n {
		all = append(all, r.content())
	}
	r.handles[at] = all
	return all
}

// walk goes through a stream's collections. One may be referred to again and again, so its
// steps are bounded.
type walk struct{ left int }

// list are the objects of one of Java's collections, keys and values in turn of a map;
// none once no step is left.
func (w *walk) list(collection any) (all []*object) {
	o, ok := collection.(*object)
	if !ok {
		return nil
	}
	if w.left -= 1 + len(o.extra); w.left < 0 {
		return nil
	}
	for _, e := range o.extra {
		if e, ok := e.(*object); ok {
			all = append(all, e)
		}
	}
	return all
}

func (o *object) text(name string) string {
	s, _ := o.fields[name].(string)
	return s
}

func (o *object) number(name string) int64 {
	n, _ := o.fields[name].(int64)
	return n
}

package reduce

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// vector is the bytes of elements.
func vector[T any](values ...T) []byte {
	v, err := binary.Append(make([]byte, 0, 8*len(values)), binary.NativeEndian, values)
	if err != nil {
		panic(err)
	}
	return v
}

// TestInto: each type and operation gives what a plain loop gives, whatever the length, also in place.
func TestInto(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, sources := range []int{1, 2, 3, 4, 5, 7, 8} {
		for _, n := range []int{0, 1, 3, 4, 1023, 1024, 1025, 5000} {
			for _, op := range []Op{Sum, Min, Max, Mean} {
				name := fmt.Sprintf("%d sources of %d, %s", sources, n, op)
				check(t, name, Float32, op, sources, n, func() float32 { return random.Float32() - 0.5 })
				check(t, name, Float64, op, sources, n, func() float64 { return random.Float64() - 0.5 })
				check(t, name, Int32, op, sources, n, random.Int32)
				check(t, name, Int64, op, sources, n, random.Int64)
			}
		}
	}
}

func check[T number](t *testing.T, name string, typ Type, op Op, sources, n int, random func() T) {
	t.Helper()
	values := make([][]T, sources)
	in := make([][]byte, sources)
	for s := range values {
		values[s] = make([]T, n)
		for i := range values[s] {
			values[s][i] = random()
		}
		in[s] = vector(values[s]...)
	}
	want := append([]T(nil), values[0]...)
	for _, v := range values[1:] {
		for i := range want {
			switch op {
			case Sum, Mean:
				want[i] += v[i]
			case Min:
				want[i] = min(want[i], v[i])
			case Max:
				want[i] = max(want[i], v[i])
			}
		}
	}
	for at, dst := range append([][]byte{make([]byte, len(in[0]))}, in[sources-1]) { // the last one is in place
		if err := Into(dst, in, typ, op); err != nil {
			t.Fatalf("%s of %s: %v", name, typ, err)
		}
		if got := string(dst); got != string(vector(want...)) {
			t.Fatalf("%s of %s, in place %t: the result differs", name, typ, at == 1)
		}
	}
}

// TestHalf: half-precision numbers are added in float32 and rounded once.
func TestHalf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ  Type
		in   []float32
		op   Op
		want float32
	}{
		{Float16, []float32{2048, 1, 1}, Sum, 2050}, // one rounding for each addition would give 2048
		{BFloat16, []float32{256, 1, 1}, Sum, 258},
		{Float16, []float32{1.5, -2.25}, Min, -2.25},
		{BFloat16, []float32{1.5, -2.25}, Max, 1.5},
		{Float16, []float32{65504, 65504}, Sum, float32(math.Inf(1))},
		{Float16, []float32{float32(math.NaN()), 1}, Min, float32(math.NaN())},
	} {
		to, from := toFloat16, fromFloat16
		if c.typ == BFloat16 {
			to, from = toBFloat16, fromBFloat16
		}
		var in [][]byte
		for _, f := range c.in {
			in = append(in, vector(to(f)))
		}
		dst := make([]byte, 2)
		if err := Into(dst, in, c.typ, c.op); err != nil {
			t.Fatal(err)
		}
		got := from(binary.NativeEndian.Uint16(dst))
		if got != c.want && (got == got || c.want == c.want) {
			t.Errorf("%s of %v as %s is %v, not %v", c.op, c.in, c.typ, got, c.want)
		}
	}
}

// TestHalfConversions: every half-precision number is kept, and a number between two is rounded to the nearest.
func TestHalfConversions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		to   func(float32) uint16
		from func(uint16) float32
	}{"float16": {toFloat16, fromFloat16}, "bfloat16": {toBFloat16, fromBFloat16}} {
		for h := range 1 << 16 {
			f := c.from(uint16(h))
			if f != f {
				if back := c.from(c.to(f)); back == back {
					t.Errorf("%s %#x: NaN becomes %v", name, h, back)
				}
				continue
			}
			if got := c.to(f); got != uint16(h) {
				t.Fatalf("%s %#x is %v and becomes %#x", name, h, f, got)
			}
			next := c.from(uint16(h) + 1) // away from zero
			if math.IsInf(float64(f), 0) || next != next || math.IsInf(float64(next), 0) {
				continue
			}
			middle := float32((float64(f) + float64(next)) / 2)
			even := uint16(h) + uint16(h)&1
			if got := c.to(middle); got != even {
				t.Fatalf("%s: %v, between %#x and the next, becomes %#x", name, middle, h, got)
			}
			if got := c.to(math.Nextafter32(middle, f)); got != uint16(h) {
				t.Fatalf("%s: a number below %v becomes %#x, not %#x", name, middle, got, h)
			}
		}
	}
}

// TestRefused: vectors that do not fit each other, and names that are not known.
func TestRefused(t *testing.T) {
	t.Parallel()
	aligned := make([]byte, 64)
	for name, err := range map[string]error{
		"none to make 64 bytes": Into(aligned, nil, Float32, Sum),
		"have 64 and 32 bytes":  Into(aligned, [][]byte{aligned, aligned[:32]}, Float32, Sum),
		"have 6 and 6 bytes":    Into(aligned[:6], [][]byte{aligned[:6]}, Float32, Sum),
		"a multiple of 4 bytes": Into(aligned[1:5], [][]byte{aligned[:4]}, Float32, Sum),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]Type{"float32": Float32, "bfloat16": BFloat16, "int64": Int64} {
		if got, err := ParseType(text); got != want || err != nil || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if _, err := ParseType("complex64"); err == nil {
		t.Error("complex64 was accepted")
	}
	if op, err := ParseOp("max"); op != Max || err != nil {
		t.Errorf("max: %v, %v", op, err)
	}
	if _, err := ParseOp("prod"); err == nil {
		t.Error("prod was accepted")
	}
}

func BenchmarkInto(b *testing.B) {
	for _, c := range []struct {
		typ     Type
		sources int
	}{{Float32, 2}, {Float32, 4}, {BFloat16, 2}} {
		b.Run(fmt.Sprintf("%s/%d", c.typ, c.sources), func(b *testing.B) {
			const size = 8 << 20
			var in [][]byte
			for range c.sources {
				in = append(in, make([]byte, size))
			}
			b.SetBytes(size)
			for b.Loop() {
				if err := Into(in[0], in, c.typ, Sum); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

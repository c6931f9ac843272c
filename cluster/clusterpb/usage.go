package clusterpb

import (
	"math"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Values returns the fields by their names in cluster.proto, without optional ones that are absent and without values
// that JSON cannot hold.
func (x *Usage) Values() map[string]float64 {
	values := map[string]float64{}
	m := x.ProtoReflect()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue
		}
		n := math.NaN()
		switch v := m.Get(f); f.Kind() {
		case protoreflect.Uint64Kind:
			n = float64(v.Uint())
		case protoreflect.FloatKind, protoreflect.DoubleKind:
			n = v.Float()
		}
		if !math.IsNaN(n) && !math.IsInf(n, 0) {
			values[f.TextName()] = n
		}
	}
	return values
}

// UsageOf is the reverse of Values. A value that a field cannot hold becomes the nearest one, a name that is no field
// is left out.
func UsageOf(values map[string]float64) *Usage {
	x := &Usage{}
	m := x.ProtoReflect()
	for name, n := range values {
		f := m.Descriptor().Fields().ByTextName(name)
		if f == nil {
			continue
		}
		switch f.Kind() {
		case protoreflect.Uint64Kind:
			whole := uint64(math.MaxUint64)
			if n < math.MaxUint64 {
				whole = uint64(max(0, n))
			}
			m.Set(f, protoreflect.ValueOfUint64(whole))
		case protoreflect.FloatKind:
			m.Set(f, protoreflect.ValueOfFloat32(float32(n)))
		case protoreflect.DoubleKind:
			m.Set(f, protoreflect.ValueOfFloat64(n))
		}
	}
	return x
}

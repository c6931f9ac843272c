package reduce

import "math"

// conversion converts blocks of half-precision numbers.
type conversion interface {
	decode(to []float32, from []uint16)
	encode(to []uint16, from []float32)
}

type (
	float16  struct{}
	bfloat16 struct{}
)

func (float16) decode(to []float32, from []uint16) {
	for i, h := range from {
		to[i] = fromFloat16(h)
	}
}

func (float16) encode(to []uint16, from []float32) {
	for i, f := range from {
		to[i] = toFloat16(f)
	}
}

func (bfloat16) decode(to []float32, from []uint16) {
	for i, h := range from {
		to[i] = fromBFloat16(h)
	}
}

func (bfloat16) encode(to []uint16, from []float32) {
	for i, f := range from {
		to[i] = toBFloat16(f)
	}
}

// fromFloat16 converts a number of IEEE 754's binary16.
func fromFloat16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case exponent == 0x1f: // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	case exponent == 0: // subnormal: fraction · 2⁻²⁴
		f := float32(fraction) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// toFloat16 rounds to the nearest number of binary16, to the even one of two.
func toFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, rest := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case rest > 0x7f800000: // NaN: quiet, with the upper part of its payload
		return sign | 0x7e00 | uint16(rest>>13&0x3ff)
	case rest >= 0x477ff000: // 65520 and more
		return sign | 0x7c00
	case rest < 0x38800000: // less than 2⁻¹⁴: adding 1/2 moves the fraction to the lowest bits, rounded by the processor
		return sign | uint16(math.Float32bits(math.Float32frombits(rest)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((rest+0xfff+rest>>13&1-(127-15)<<23)>>13)
}

// fromBFloat16 converts a bfloat16, the upper half of a float32.
func fromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toBFloat16 rounds to the nearest bfloat16, to the even one of two.
func toBFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40 // NaN stays NaN
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

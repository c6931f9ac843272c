package events

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Scalar is one value for TensorBoard.
type Scalar struct {
	Tag      string
	Step     int64
	Value    float64
	WallTime float64 // seconds since 1970
}

// fields calls f for each field of a message, up to the first malformed one.
func fields(b []byte, f func(num protowire.Number, typ protowire.Type, v uint64, bytes []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var w uint32
			w, n = protowire.ConsumeFixed32(b)
			v = uint64(w)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return
		}
		f(num, typ, v, data)
		b = b[n:]
	}
}

// scalars returns the values of an Event: wall_time 1, step 2, summary 5.
func scalars(event []byte) []Scalar {
	var wall float64
	var step int64
	var summary []byte
	fields(event, func(num protowire.Number, typ protowire.Type, v uint64, data []byte) {
		switch {
		case num == 1 && typ == protowire.Fixed64Type:
			wall = math.Float64frombits(v)
		case num == 2 && typ == protowire.VarintType:
			step = int64(v)
		case num == 5 && typ == protowire.BytesType:
			summary = data
		}
	})
	var out []Scalar
	fields(summary, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) {
		if num != 1 || typ != protowire.BytesType {
			return
		}
		if tag, value, ok := summaryValue(data); ok {
			out = append(out, Scalar{Tag: tag, Step: step, Value: value, WallTime: wall})
		}
	})
	return out
}

// summaryValue parses a Summary.Value: tag 1, simple_value 2 (TensorFlow 1), tensor 8
// (TensorFlow 2).
func summaryValue(b []byte) (tag string, value float64, ok bool) {
	fields(b, func(num protowire.Number, typ protowire.Type, v uint64, data []byte) {
		switch {
		case num == 1 && typ == protowire.BytesType:
			tag = string(data)
		case num == 2 && typ == protowire.Fixed32Type:
			value, ok = float64(math.Float32frombits(uint32(v))), true
		case num == 8 && typ == protowire.BytesType:
			if f, is := scalarTensor(data); is {
				value, ok = f, true
			}
		}
	})
	return tag, value, ok && tag != ""
}

// Types of a TensorProto of a scalar summary.
const (
	dtFloat  = 1
	dtDouble = 2
	dtInt32  = 3
	dtInt64  = 9
)

// scalarTensor parses a TensorProto of one number: dtype 1, tensor_shape 2, tensor_content 4,
// float_val 5, double_val 6, int_val 7, int64_val 10.
func scalarTensor(b []byte) (float64, bool) {
	var dtype uint64
	var content []byte
	var value float64
	var set, shaped bool
	fields(b, func(num protowire.Number, typ protowire.Type, v uint64, data []byte) {
		switch {
		case num == 1 && typ == protowire.VarintType:
			dtype = v
		case num == 2 && typ == protowire.BytesType:
			fields(data, func(num protowire.Number, _ protowire.Type, _ uint64, _ []byte) { shaped = shaped || num == 2 })
		case num == 4:
			content = data
		case num == 5 && typ == protowire.Fixed32Type:
			value, set = float64(math.Float32frombits(uint32(v))), true
		case num == 5 && len(data) == 4:
			value, set = float64(math.Float32frombits(binary.LittleEndian.Uint32(data))), true
		case num == 6 && typ == protowire.Fixed64Type:
			value, set = math.Float64frombits(v), true
		case num == 6 && len(data) == 8:
			value, set = math.Float64frombits(binary.LittleEndian.Uint64(data)), true
		case (num == 7 || num == 10) && typ == protowire.VarintType:
			value, set = float64(int64(v)), true
		case num == 7 || num == 10: // packed
			if v, n := protowire.ConsumeVarint(data); n > 0 && n == len(data) {
				value, set = float64(int64(v)), true
			}
		}
	})
	if set || shaped { // with a dimension it is a histogram or an image
		return value, set && !shaped
	}
	switch {
	case dtype == dtFloat && len(content) == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(content))), true
	case dtype == dtDouble && len(content) == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(content)), true
	case dtype == dtInt32 && len(content) == 4:
		return float64(int32(binary.LittleEndian.Uint32(content))), true
	case dtype == dtInt64 && len(content) == 8:
		return float64(int64(binary.LittleEndian.Uint64(content))), true
	}
	return 0, false
}

package clusterpb

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tfcluster/tfcluster/internal/errtext"
)

// ToJSON encodes a message for other programs: --json, run.json, the JupyterLab extension. Keys
// are the names in cluster.proto, and 64-bit integers are numbers, not strings as in protojson.
// With all, zero values are included. protojson can read the result.
func ToJSON(m proto.Message, all bool) (json.RawMessage, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: all}.Marshal(m)
	if err != nil {
		return nil, errtext.Fault("encode an answer as JSON: %w", err)
	}
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, errtext.Fault("encode an answer as JSON: %w", err)
	}
	numbers(v, m.ProtoReflect().Descriptor())
	if text, err = json.Marshal(v); err != nil {
		return nil, errtext.Fault("encode an answer as JSON: %w", err)
	}
	return text, nil
}

// numbers replaces strings of 64-bit integers in a decoded message by numbers.
func numbers(message map[string]any, d protoreflect.MessageDescriptor) {
	for name, v := range message {
		f := d.Fields().ByTextName(name)
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = numeric(v[i], f)
			}
		case map[string]any:
			if f.IsMap() {
				for key := range v {
					v[key] = numeric(v[key], f.MapValue())
				}
				continue
			}
			numbers(v, f.Message())
		default:
			message[name] = numeric(v, f)
		}
	}
}

func numeric(v any, f protoreflect.FieldDescriptor) any {
	switch v := v.(type) {
	case map[string]any:
		numbers(v, f.Message())
	case string:
		switch f.Kind() {
		case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind,
			protoreflect.Fixed64Kind:
			return json.Number(v)
		}
	}
	return v
}

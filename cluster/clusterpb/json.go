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
// With all, zero values are included. A task's usage is among the task's own keys. FromJSON reads
// the result.
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
	eachTask(v, m.ProtoReflect().Descriptor(), func(task map[string]any) { flatten(task, all) })
	if text, err = json.Marshal(v); err != nil {
		return nil, errtext.Fault("encode an answer as JSON: %w", err)
	}
	return text, nil
}

// FromJSON reads a message that ToJSON has encoded, also one of a later version, which may have more fields.
func FromJSON(text []byte, m proto.Message) error {
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return err
	}
	eachTask(v, m.ProtoReflect().Descriptor(), nest)
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
}

// eachTask calls f for each TaskStatus in a decoded message.
func eachTask(message map[string]any, d protoreflect.MessageDescriptor, f func(map[string]any)) {
	if d.FullName() == (*TaskStatus)(nil).ProtoReflect().Descriptor().FullName() {
		f(message)
		return
	}
	for name, v := range message {
		field := d.Fields().ByTextName(name)
		if field == nil || field.Message() == nil || field.IsMap() {
			continue
		}
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				if one, ok := one.(map[string]any); ok {
					eachTask(one, field.Message(), f)
				}
			}
		case map[string]any:
			eachTask(v, field.Message(), f)
		}
	}
}

// usageKey is the key of a task's usage.
const usageKey = "usage"

// flatten moves a task's usage among the task's keys; with all, its zero values too.
func flatten(task map[string]any, all bool) {
	values, _ := task[usageKey].(map[string]any)
	delete(task, usageKey)
	fields := (*Usage)(nil).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := fields.Get(i).TextName()
		v, ok := values[name]
		if !ok {
			v = json.Number("0")
		}
		if all || v != json.Number("0") {
			task[name] = v
		}
	}
}

// nest is the reverse of flatten.
func nest(task map[string]any) {
	values := map[string]any{}
	fields := (*Usage)(nil).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := fields.Get(i).TextName()
		if v, ok := task[name]; ok {
			values[name] = v
			delete(task, name)
		}
	}
	if len(values) > 0 {
		task[usageKey] = values
	}
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

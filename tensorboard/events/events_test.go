package events

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record frames data as TensorFlow does.
func record(data []byte) []byte {
	var b []byte
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(crc32.Checksum(b, castagnoli)))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, masked(crc32.Checksum(data, castagnoli)))
}

func bytesField(num protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), data)
}

func varintField(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func floatField(num protowire.Number, v float32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(nil, num, protowire.Fixed32Type), math.Float32bits(v))
}

func doubleField(num protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(nil, num, protowire.Fixed64Type), math.Float64bits(v))
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// event is a tensorflow.Event of one Summary.Value, of which rest is all but the tag.
func event(step int64, tag string, rest ...[]byte) []byte {
	value := join(append([][]byte{bytesField(1, []byte(tag))}, rest...)...)
	return join(doubleField(1, 100.5), varintField(2, uint64(step)), bytesField(5, bytesField(1, value)))
}

func tensor(parts ...[]byte) []byte { return bytesField(8, join(parts...)) }

func TestScalars(t *testing.T) {
	t.Parallel()
	float := binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.5))
	double := binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.25))
	minus := int64(-3)
	vector := bytesField(2, bytesField(2, varintField(1, 2))) // shape [2]
	tests := map[string]struct {
		event []byte
		want  []float64
	}{
		"TensorFlow 1, simple_value": {event(7, "loss", floatField(2, 1.5)), []float64{1.5}},
		"float content": {
			event(7, "loss", tensor(varintField(1, dtFloat), bytesField(2, nil), bytesField(4, float))), []float64{0.5},
		},
		"float_val, packed":  {event(7, "loss", tensor(varintField(1, dtFloat), bytesField(5, float))), []float64{0.5}},
		"float_val":          {event(7, "loss", tensor(varintField(1, dtFloat), floatField(5, 0.5))), []float64{0.5}},
		"double content":     {event(7, "loss", tensor(varintField(1, dtDouble), bytesField(4, double))), []float64{0.25}},
		"double_val, packed": {event(7, "loss", tensor(varintField(1, dtDouble), bytesField(6, double))), []float64{0.25}},
		"double_val":         {event(7, "loss", tensor(varintField(1, dtDouble), doubleField(6, 0.25))), []float64{0.25}},
		"int32 content": {
			event(7, "loss", tensor(varintField(1, dtInt32),
				bytesField(4, binary.LittleEndian.AppendUint32(nil, uint32(minus))))), []float64{-3},
		},
		"int64 content": {
			event(7, "loss", tensor(varintField(1, dtInt64),
				bytesField(4, binary.LittleEndian.AppendUint64(nil, uint64(minus))))), []float64{-3},
		},
		"int_val": {
			event(7, "loss", tensor(varintField(1, dtInt32), varintField(7, uint64(minus)))), []float64{-3},
		},
		"int64_val, packed": {
			event(7, "loss", tensor(varintField(1, dtInt64), bytesField(10, protowire.AppendVarint(nil, uint64(minus))))),
			[]float64{-3},
		},
		"a vector":       {event(7, "loss", tensor(varintField(1, dtFloat), vector, bytesField(5, float))), nil},
		"a string":       {event(7, "loss", tensor(varintField(1, 7), bytesField(8, []byte("x")))), nil},
		"without a tag":  {event(7, "", floatField(2, 1.5)), nil},
		"a file version": {join(doubleField(1, 1), bytesField(3, []byte("brain.Event:2"))), nil},
		"nothing":        {nil, nil},
		"cut short":      {event(7, "loss", floatField(2, 1.5))[:12], nil},
		"not a message":  {[]byte("\xff\xff\xff\xff"), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []Scalar
			for _, v := range tt.want {
				want = append(want, Scalar{Tag: "loss", Step: 7, Value: v, WallTime: 100.5})
			}
			if got := scalars(tt.event); !reflect.DeepEqual(got, want) {
				t.Errorf("scalars() = %v, want %v", got, want)
			}
		})
	}
}

func TestReadRecord(t *testing.T) {
	t.Parallel()
	whole := record([]byte("hello"))
	flip := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 1
		return b
	}
	huge := binary.LittleEndian.AppendUint64(nil, 1<<62)
	huge = binary.LittleEndian.AppendUint32(huge, masked(crc32.Checksum(huge, castagnoli)))
	tests := map[string]struct {
		file []byte
		want string
		err  error
	}{
		"whole":                  {whole, "hello", nil},
		"followed by another":    {append(bytes.Clone(whole), whole...), "hello", nil},
		"empty":                  {record(nil), "", nil},
		"nothing yet":            {nil, "", errPartial},
		"half a head":            {whole[:6], "", errPartial},
		"a head":                 {whole[:headerBytes], "", errPartial},
		"all but the last byte":  {whole[:len(whole)-1], "", errPartial},
		"another length":         {flip(0), "", ErrCorrupt},
		"another length's check": {flip(9), "", ErrCorrupt},
		"another data":           {flip(headerBytes), "", ErrCorrupt},
		"another data's check":   {flip(len(whole) - 1), "", ErrCorrupt},
		"an absurd length":       {huge, "", ErrCorrupt},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, next, err := readRecord(bytes.NewReader(tt.file), 0, castagnoli)
			if !errors.Is(err, tt.err) || string(data) != tt.want {
				t.Errorf("readRecord() = %q, %v, want %q, %v", data, err, tt.want, tt.err)
			}
			if want := int64(headerBytes + len(tt.want) + footerBytes); err == nil && next != want {
				t.Errorf("the next is at %d, want %d", next, want)
			}
			if err != nil && next != 0 {
				t.Errorf("it went on to %d after %v", next, err)
			}
		})
	}
}

// sparse is a record over MaxRecord of which only the head is there.
type sparse struct {
	head []byte
}

func (s sparse) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(append(bytes.Clone(s.head),
		make([]byte, max(0, off+int64(len(p))-int64(len(s.head))))...)).ReadAt(p, off)
}

func TestReadRecordSkipsWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	head := binary.LittleEndian.AppendUint64(nil, MaxRecord+1)
	head = binary.LittleEndian.AppendUint32(head, masked(crc32.Checksum(head, castagnoli)))
	data, next, err := readRecord(sparse{head: head}, 0, castagnoli)
	if err != nil || data != nil || next != headerBytes+MaxRecord+1+footerBytes {
		t.Errorf("readRecord() = %d bytes, %d, %v", len(data), next, err)
	}
	if _, _, err := readRecord(bytes.NewReader(head), 0, castagnoli); !errors.Is(err, errPartial) {
		t.Errorf("of a head alone: %v, want %v", err, errPartial)
	}
}

// TestReadRecordMakesNoRoomInVain: a head alone, asked for each second, costs its bytes.
func TestReadRecordMakesNoRoomInVain(t *testing.T) {
	head := binary.LittleEndian.AppendUint64(nil, MaxRecord)
	head = binary.LittleEndian.AppendUint32(head, masked(crc32.Checksum(head, castagnoli)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := readRecord(bytes.NewReader(head), 0, castagnoli); !errors.Is(err, errPartial) {
		t.Errorf("%v, want %v", err, errPartial)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > MaxRecord/2 {
		t.Errorf("it took %d bytes", took)
	}
}

func FuzzReadRecord(f *testing.F) {
	f.Add(record([]byte("hello")))
	f.Add(record(event(1, "loss", floatField(2, 1.5))))
	f.Add(record(nil)[:9])
	f.Fuzz(func(t *testing.T, file []byte) {
		for offset := int64(0); ; {
			data, next, err := readRecord(bytes.NewReader(file), offset, castagnoli)
			if err != nil {
				if !errors.Is(err, errPartial) && !errors.Is(err, ErrCorrupt) {
					t.Fatalf("an error of another kind: %v", err)
				}
				return
			}
			if next <= offset || next > int64(len(file)) {
				t.Fatalf("from %d to %d in %d bytes", offset, next, len(file))
			}
			scalars(data)
			offset = next
		}
	})
}

func FuzzScalars(f *testing.F) {
	f.Add(event(7, "loss", floatField(2, 1.5)))
	f.Add(event(7, "loss", tensor(varintField(1, dtInt64), bytesField(10, protowire.AppendVarint(nil, 9)))))
	f.Add(event(7, "loss", tensor(varintField(1, dtFloat), bytesField(2, bytesField(2, nil)))))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range scalars(data) {
			if s.Tag == "" {
				t.Errorf("a scalar without a tag: %v", s)
			}
		}
	})
}

func appendTo(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestDirFollowsAGrowingFile(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "logs")
	d := NewDir(root, "")
	next := func(want ...float64) {
		t.Helper()
		found, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for _, s := range found {
			got = append(got, s.Value)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("found %v, want %v", got, want)
		}
	}
	next() // the folder is not there yet
	path := filepath.Join(root, "train", "events.out.tfevents.1.h")
	one, two := record(event(1, "loss", floatField(2, 1))), record(event(2, "loss", floatField(2, 2)))
	appendTo(t, path, one[:20])
	next()
	appendTo(t, path, one[20:])
	next(1)
	next()
	appendTo(t, filepath.Join(root, "validation", "events.out.tfevents.1.h"), one)
	appendTo(t, filepath.Join(root, "train", "checkpoint"), []byte("not an event file"))
	appendTo(t, path, append(bytes.Clone(two), one...))
	next(2, 1, 1)
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	next()
}

func TestDirTellsOfACorruptFileOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	good := record(event(1, "loss", floatField(2, 1)))
	bad := bytes.Clone(good)
	bad[headerBytes] ^= 1
	appendTo(t, filepath.Join(root, "a.tfevents"), append(bytes.Clone(good), bad...))
	appendTo(t, filepath.Join(root, "b.tfevents"), good)
	d := NewDir(root, "")
	found, err := d.Next()
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "a.tfevents") {
		t.Errorf("error %v, want one about a.tfevents", err)
	}
	if len(found) != 2 || found[0].File != "a.tfevents" || found[1].File != "b.tfevents" {
		t.Errorf("found %v, want one of each file", found)
	}
	appendTo(t, filepath.Join(root, "a.tfevents"), good)
	if found, err := d.Next(); err != nil || len(found) > 0 {
		t.Errorf("again: %v, %v", found, err)
	}
}

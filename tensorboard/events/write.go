package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Writer appends scalars to one event file. It keeps no file open.
type Writer struct {
	path  string
	table *crc32.Table
}

// NewWriter returns a Writer for a new file in a folder; its name ends with suffix. Both are
// created with the first scalar.
func NewWriter(dir, suffix string) *Writer {
	name := fmt.Sprintf("events.out.tfevents.%d%s", time.Now().Unix(), suffix)
	return &Writer{filepath.Join(dir, name), crc32.MakeTable(crc32.Castagnoli)}
}

// Append writes scalars to the end of the file.
func (w *Writer) Append(scalars []Scalar) error {
	if err := os.MkdirAll(filepath.Dir(w.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(w.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var b []byte
	if info, err := f.Stat(); err == nil && info.Size() == 0 {
		version := protowire.AppendTag(wallTime(float64(time.Now().UnixNano())/1e9), 3, protowire.BytesType)
		b = w.record(b, protowire.AppendString(version, "brain.Event:2"))
	}
	for _, s := range scalars {
		b = w.record(b, encode(s))
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// Path returns the path of the file.
func (w *Writer) Path() string { return w.path }

// Remove removes the file.
func (w *Writer) Remove() error {
	if err := os.Remove(w.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// record appends a record to b; see readRecord.
func (w *Writer) record(b, data []byte) []byte {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], uint64(len(data)))
	b = append(b, head[:]...)
	b = binary.LittleEndian.AppendUint32(b, masked(crc32.Checksum(head[:], w.table)))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, masked(crc32.Checksum(data, w.table)))
}

func wallTime(seconds float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(seconds))
}

// encode encodes an Event with one Summary.Value: tag 1, simple_value 2.
func encode(s Scalar) []byte {
	value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), s.Tag)
	value = protowire.AppendFixed32(protowire.AppendTag(value, 2, protowire.Fixed32Type),
		math.Float32bits(float32(s.Value)))
	summary := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), value)
	event := protowire.AppendVarint(protowire.AppendTag(wallTime(s.WallTime), 2, protowire.VarintType), uint64(s.Step))
	return protowire.AppendBytes(protowire.AppendTag(event, 5, protowire.BytesType), summary)
}

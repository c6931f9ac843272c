package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A record is framed as
//
//	uint64 length, uint32 masked crc of length, length bytes, uint32 masked crc of them
//
// little endian, crc32c, masked by a rotation of 15 bits and a constant
// (tensorflow/core/lib/io/record_writer.h).
const (
	headerBytes = 12
	footerBytes = 4
	maskDelta   = 0xa282ead8
)

// MaxRecord is the maximum size of a record: larger events are skipped. Summaries of images and
// histograms are far smaller.
const MaxRecord = 64 << 20

// ErrCorrupt is the error of a file with a corrupt record, after which nothing can be read.
var ErrCorrupt = errors.New("a record is corrupt: the file was damaged or is written by several processes")

// errPartial is the error of a record that is not completely written yet.
var errPartial = errors.New("a record is not completely written yet")

func masked(crc uint32) uint32 { return (crc>>15 | crc<<17) + maskDelta }

// readRecord reads the record at an offset. It returns errPartial for an incomplete record and
// ErrCorrupt for a corrupt one. Of a record larger than MaxRecord it returns no data.
func readRecord(r io.ReaderAt, offset int64, table *crc32.Table) (data []byte, next int64, err error) {
	var head [headerBytes]byte
	if n, err := r.ReadAt(head[:], offset); n < headerBytes {
		if err == io.EOF {
			return nil, offset, errPartial
		}
		return nil, offset, err
	}
	if masked(crc32.Checksum(head[:8], table)) != binary.LittleEndian.Uint32(head[8:]) {
		return nil, offset, fmt.Errorf("%w: the length at byte %d does not match its checksum", ErrCorrupt, offset)
	}
	length := binary.LittleEndian.Uint64(head[:8])
	if length > 1<<40 {
		return nil, offset, fmt.Errorf("%w: the length at byte %d says %d bytes", ErrCorrupt, offset, length)
	}
	next = offset + headerBytes + int64(length) + footerBytes
	var last [1]byte // checked before allocating memory
	if n, err := r.ReadAt(last[:], next-1); n < 1 {
		if err == io.EOF {
			return nil, offset, errPartial
		}
		return nil, offset, err
	}
	if length > MaxRecord {
		return nil, next, nil
	}
	body := make([]byte, length+footerBytes)
	if n, err := r.ReadAt(body, offset+headerBytes); n < len(body) {
		if err == io.EOF {
			return nil, offset, errPartial
		}
		return nil, offset, err
	}
	data = body[:length]
	if masked(crc32.Checksum(data, table)) != binary.LittleEndian.Uint32(body[length:]) {
		return nil, offset, fmt.Errorf("%w: the data at byte %d does not match its checksum", ErrCorrupt, offset)
	}
	return data, next, nil
}

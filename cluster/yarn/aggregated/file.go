package aggregated

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Errors of files that cannot be read.
var (
	ErrCorrupt = errors.New("the log file is corrupt")
	// ErrFormat means that a file is not a TFile: YARN can be configured to write other formats.
	ErrFormat = errors.New("the file is not a TFile")
	// ErrCompression means that a file's compression is not supported.
	ErrCompression = errors.New("tfcluster cannot read log files with the compression")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

// magic is at the start and at the end of each file.
var magic = []byte{0xd1, 0x11, 0xd3, 0x68, 0x91, 0xb5, 0xd7, 0xb6, 0x39, 0xdf, 0x41, 0x40, 0x92, 0xba, 0xe1, 0x50}

// tailSize is the size of a file's end: the offset of the index, the version, the magic.
const tailSize = 8 + 4 + 16

// region is the position of a block in the file.
type region struct{ at, size int64 }

// blocks is the index of a file's data blocks.
type blocks struct {
	file        *seeking
	compression string
	data        []region
}

// Bounds of the sizes in a corrupt file.
const (
	maxString = 1 << 20 // a log's name, or a container's
	maxBlocks = 1 << 20 // a block has 256 KB, or more if a container's logs are larger
)

// openBlocks reads a file's index of data blocks.
func openBlocks(file io.ReadSeeker, size int64) (*blocks, error) {
	if size < int64(len(magic))+tailSize {
		return nil, ErrFormat
	}
	at := &seeking{file, -1}
	var tail [tailSize]byte
	if _, err := at.ReadAt(tail[:], size-tailSize); err != nil {
		return nil, truncated(err)
	}
	if !bytes.Equal(tail[tailSize-len(magic):], magic) {
		var head [16]byte
		if _, err := at.ReadAt(head[:], 0); err == nil && bytes.Equal(head[:], magic) {
			return nil, corrupt("its end is missing")
		}
		return nil, ErrFormat
	}
	if v := binary.BigEndian.Uint16(tail[8:]); v != 1 {
		return nil, fmt.Errorf("%w of version 1, the only supported version: the file has version %d", ErrFormat, v)
	}
	end := size - tailSize
	offset := int64(binary.BigEndian.Uint64(tail[:]))
	if offset < 0 || offset > end {
		return nil, corrupt("the index is outside the file")
	}
	b := &blocks{file: at}
	compression, index, err := b.metaBlock(region{offset, end - offset}, "BCFile.index", end)
	if err != nil {
		return nil, err
	}
	r, err := b.open(index, compression)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if b.compression, err = readString(r); err != nil {
		return nil, err
	}
	n, err := readNumber(r)
	if err != nil {
		return nil, truncated(err)
	}
	if n < 0 || n > maxBlocks {
		return nil, corrupt("the index has %d blocks", n)
	}
	for range n {
		one, err := readRegion(r, end)
		if err != nil {
			return nil, err
		}
		b.data = append(b.data, one)
	}
	return b, nil
}

// metaBlock returns the compression and the position of a metadata block.
func (b *blocks) metaBlock(index region, name string, end int64) (compression string, at region, err error) {
	r, err := b.open(index, "none")
	if err != nil {
		return "", region{}, err
	}
	defer r.close()
	n, err := readNumber(r)
	if err != nil {
		return "", region{}, truncated(err)
	}
	for range n {
		found, err := readString(r)
		if err != nil {
			return "", region{}, err
		}
		if compression, err = readString(r); err != nil {
			return "", region{}, err
		}
		if at, err = readRegion(r, end); err != nil {
			return "", region{}, err
		}
		if found == "data:"+name {
			return compression, at, nil
		}
	}
	return "", region{}, corrupt("the index has no %s", name)
}

// seeking reads anywhere in a file. It seeks only if it must: a file on HDFS connects again then.
type seeking struct {
	io.ReadSeeker
	offset int64 // the file's; -1: unknown
}

// ReadAt implements io.ReaderAt.
func (s *seeking) ReadAt(p []byte, at int64) (int, error) {
	if s.offset != at {
		s.offset = -1
		if _, err := s.Seek(at, io.SeekStart); err != nil {
			return 0, err
		}
	}
	n, err := io.ReadFull(s, p)
	s.offset = at + int64(n)
	if err == io.EOF { // a wrapped one is of the storage
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readRegion reads the position of a block, which must be before end.
func readRegion(r io.ByteReader, end int64) (region, error) {
	var n [3]int64 // offset, size in the file, uncompressed size
	for i := range n {
		var err error
		if n[i], err = readNumber(r); err != nil {
			return region{}, truncated(err)
		}
	}
	if n[0] < 0 || n[1] < 0 || n[0] > end || n[1] > end-n[0] {
		return region{}, corrupt("a block is outside the file")
	}
	return region{n[0], n[1]}, nil
}

func readString(r *block) (string, error) {
	n, err := readNumber(r)
	if err != nil {
		return "", truncated(err)
	}
	if n < 0 || n > maxString {
		return "", corrupt("a string of %d bytes", n)
	}
	var s strings.Builder
	if _, err := io.CopyN(&s, r, n); err != nil {
		return "", truncated(err)
	}
	return s.String(), nil
}

// pageSize is the number of bytes that are read at once.
const pageSize = 64 << 10

// block reads one block.
type block struct {
	*bufio.Reader
	raw          *io.SectionReader // nil if the block is compressed: then nothing can be skipped without reading
	decompressor io.ReadCloser     // nil if the block is not compressed
}

// open returns a reader of a block.
func (b *blocks) open(at region, compression string) (*block, error) {
	w := io.NewSectionReader(b.file, at.at, at.size)
	switch compression {
	case "none":
		return &block{Reader: bufio.NewReaderSize(w, pageSize), raw: w}, nil
	case "gz": // Hadoop's name for zlib
		z, err := zlib.NewReader(bufio.NewReaderSize(w, pageSize))
		if err != nil {
			return nil, corrupt("decompress a block: %v", err)
		}
		return &block{Reader: bufio.NewReaderSize(z, pageSize), decompressor: z}, nil
	}
	return nil, fmt.Errorf("%w %q", ErrCompression, compression)
}

func (b *block) close() {
	if b.decompressor != nil {
		_ = b.decompressor.Close() // it has no file to close
	}
}

// skip skips n bytes, by seeking if there are many.
func (b *block) skip(n int64) error {
	if ahead := n - int64(b.Buffered()); b.raw != nil && ahead > pageSize {
		if at, err := b.raw.Seek(ahead, io.SeekCurrent); err != nil || at > b.raw.Size() {
			return corrupt("the file is truncated")
		}
		b.Reset(b.raw)
		return nil
	}
	for n > 0 {
		some, err := b.Discard(int(min(n, math.MaxInt32)))
		if n -= int64(some); err != nil {
			return blockError(err)
		}
	}
	return nil
}

// blockError converts an error of reading a block to ErrCorrupt if the data cannot be decompressed.
func blockError(err error) error {
	if errors.Is(err, zlib.ErrChecksum) || errors.Is(err, zlib.ErrHeader) || strings.HasPrefix(err.Error(), "flate: ") {
		return corrupt("%v", err)
	}
	return truncated(err)
}

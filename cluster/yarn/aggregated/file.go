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

// What is wrong with a file.
var (
	ErrCorrupt = errors.New("broken")
	// ErrFormat says that a file is no TFile: YARN can be set to write others.
	ErrFormat = errors.New("no TFile")
	// ErrCompression says that a file is compressed in a way that is not read here.
	ErrCompression = errors.New("not read here")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

// magic begins and ends each file.
var magic = []byte{0xd1, 0x11, 0xd3, 0x68, 0x91, 0xb5, 0xd7, 0xb6, 0x39, 0xdf, 0x41, 0x40, 0x92, 0xba, 0xe1, 0x50}

// tailSize is of what ends a file: where its index is, its version, the magic.
const tailSize = 8 + 4 + 16

// region is where a block lies.
type region struct{ at, size int64 }

// blocks tells of a file what is needed to read its records.
type blocks struct {
	file        io.ReadSeeker
	compression string
	data        []region
}

// Bounds of what a broken file may claim.
const (
	maxString = 1 << 20 // a name or a container's
	maxBlocks = 1 << 20 // blocks are of 256 KB, and of more where a container wrote more
)

// openBlocks reads a file's index.
func openBlocks(file io.ReadSeeker, size int64) (*blocks, error) {
	if size < int64(len(magic))+tailSize {
		return nil, ErrFormat
	}
	var tail [tailSize]byte
	if err := readAt(file, size-tailSize, tail[:]); err != nil {
		return nil, err
	}
	if !bytes.Equal(tail[tailSize-len(magic):], magic) {
		return nil, ErrFormat
	}
	if v := binary.BigEndian.Uint16(tail[8:]); v != 1 {
		return nil, fmt.Errorf("%w: version %d", ErrFormat, v)
	}
	end := size - tailSize
	at := int64(binary.BigEndian.Uint64(tail[:]))
	if at < 0 || at > end {
		return nil, corrupt("its index is outside")
	}
	b := &blocks{file: file}
	compression, index, err := b.metaBlock(region{at, end - at}, "BCFile.index", end)
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
		return nil, tooSoon(err)
	}
	if n < 0 || n > maxBlocks {
		return nil, corrupt("it has %d blocks", n)
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

// metaBlock finds a block of metadata in the index of them.
func (b *blocks) metaBlock(index region, name string, end int64) (compression string, at region, err error) {
	r, err := b.open(index, "none")
	if err != nil {
		return "", region{}, err
	}
	defer r.close()
	n, err := readNumber(r)
	if err != nil {
		return "", region{}, tooSoon(err)
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
	return "", region{}, corrupt("it has no %s", name)
}

func readAt(file io.ReadSeeker, at int64, into []byte) error {
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.ReadFull(file, into); err != nil {
		return tooSoon(err)
	}
	return nil
}

// readRegion reads where a block is; it lies before end.
func readRegion(r io.ByteReader, end int64) (region, error) {
	var n [3]int64 // where, how much in the file, how much when it is read
	for i := range n {
		var err error
		if n[i], err = readNumber(r); err != nil {
			return region{}, tooSoon(err)
		}
	}
	if n[0] < 0 || n[1] < 0 || n[0] > end || n[1] > end-n[0] {
		return region{}, corrupt("a block is outside")
	}
	return region{n[0], n[1]}, nil
}

func readString(r *block) (string, error) {
	n, err := readNumber(r)
	if err != nil {
		return "", tooSoon(err)
	}
	if n < 0 || n > maxString {
		return "", corrupt("a word of %d bytes", n)
	}
	var s strings.Builder
	if _, err := io.CopyN(&s, r, n); err != nil {
		return "", tooSoon(err)
	}
	return s.String(), nil
}

// pageSize is how much of a file is read at once.
const pageSize = 64 << 10

// block is one that is being read.
type block struct {
	*bufio.Reader
	raw    *window       // nil where the block is compressed: nothing can be left out then
	unpack io.ReadCloser // nil where it is not
}

// window is a part of a file.
type window struct {
	file     io.ReadSeeker
	at, left int64
	there    bool // the file is at at
}

func (w *window) Read(p []byte) (int, error) {
	if w.left == 0 {
		return 0, io.EOF
	}
	if !w.there {
		if _, err := w.file.Seek(w.at, io.SeekStart); err != nil {
			return 0, err
		}
		w.there = true
	}
	n, err := w.file.Read(p[:min(int64(len(p)), w.left)])
	w.at, w.left = w.at+int64(n), w.left-int64(n)
	if errors.Is(err, io.EOF) && w.left > 0 && n == 0 {
		err = io.ErrUnexpectedEOF
	} else if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// open begins to read a block. Only one can be read at a time.
func (b *blocks) open(at region, compression string) (*block, error) {
	w := &window{file: b.file, at: at.at, left: at.size}
	switch compression {
	case "none":
		return &block{Reader: bufio.NewReaderSize(w, pageSize), raw: w}, nil
	case "gz": // Hadoop's word for what zlib writes
		z, err := zlib.NewReader(bufio.NewReaderSize(w, pageSize))
		if err != nil {
			return nil, corrupt("a block that should be compressed is not: %v", err)
		}
		return &block{Reader: bufio.NewReaderSize(z, pageSize), unpack: z}, nil
	}
	return nil, fmt.Errorf("%w: compression %q", ErrCompression, compression)
}

func (b *block) close() {
	if b.unpack != nil {
		_ = b.unpack.Close() // of memory alone
	}
}

// skip leaves out n bytes, without reading them where there are many.
func (b *block) skip(n int64) error {
	if ahead := n - int64(b.Buffered()); b.raw != nil && ahead > pageSize {
		if ahead > b.raw.left {
			return corrupt("it ends too soon")
		}
		b.raw.at, b.raw.left, b.raw.there = b.raw.at+ahead, b.raw.left-ahead, false
		b.Reset(b.raw)
		return nil
	}
	for n > 0 {
		some, err := b.Discard(int(min(n, math.MaxInt32)))
		if n -= int64(some); err != nil {
			return unpacked(err)
		}
	}
	return nil
}

// unpacked is an error of reading a block: what cannot be unpacked is broken.
func unpacked(err error) error {
	if errors.Is(err, zlib.ErrChecksum) || errors.Is(err, zlib.ErrHeader) || strings.HasPrefix(err.Error(), "flate: ") {
		return corrupt("%v", err)
	}
	return tooSoon(err)
}

package aggregated

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// indexed is a file in the other format of Hadoop's, IFile: the logs one after the other,
// each packed alone, then an index, an object of Java's, and at the end how long that is,
// and the mark that the file begins with.
type indexed struct {
	reader *Reader // that it is read by
	blocks *blocks // none; it has the file and the compression
	logs   []indexedLog
	next   int
	log    *block // that is being read
	left   int64  // of it
}

// indexedLog is one log in such a file.
type indexedLog struct {
	entry Entry
	at    region
}

// Bounds of a file's index, in which a log takes about a hundred bytes.
const (
	maxIndex = 16 << 20 // bytes
	maxLogs  = 1 << 18
	maxSteps = 1 << 22 // from list to list and in them
)

// markLengths are how long the mark is: a digest, or in files of earlier versions a UUID.
var markLengths = [...]int64{32, 36}

// openIndexed reads a file's index. It fails with ErrFormat where it has no such mark.
func openIndexed(r *Reader, file io.ReadSeeker, size int64) (*indexed, error) {
	for _, n := range markLengths {
		if size < 2*n+4 {
			continue
		}
		begin, end := make([]byte, n), make([]byte, n+4)
		if err := errors.Join(readAt(file, 0, begin), readAt(file, size-n-4, end)); err != nil {
			return nil, err
		}
		if !bytes.Equal(begin, end[4:]) {
			continue
		}
		length := int64(binary.BigEndian.Uint32(end))
		if length > maxIndex || length > size-2*n-4 {
			continue
		}
		raw := make([]byte, length)
		if err := readAt(file, size-n-4-length, raw); err != nil {
			return nil, err
		}
		return readIndex(r, file, raw, size-n-4-length)
	}
	return nil, ErrFormat
}

// readIndex reads what logs there are before end.
func readIndex(r *Reader, file io.ReadSeeker, raw []byte, end int64) (*indexed, error) {
	root, err := readJava(raw)
	if err != nil {
		return nil, err
	}
	return indexOf(r, file, root, end)
}

// indexOf takes from an index what it says of each log.
func indexOf(r *Reader, file io.ReadSeeker, root *object, end int64) (*indexed, error) {
	f := &indexed{reader: r, blocks: &blocks{file: file, compression: root.text("compressName")}}
	w := &walk{left: maxSteps}
	for _, cycle := range w.list(root.fields["logMetas"]) {
		for _, of := range w.list(cycle.fields["logMetas"]) {
			for _, l := range w.list(of) {
				one := indexedLog{
					entry: Entry{Container: l.text("containerId"), Name: l.text("fileName"), Size: l.number("fileSize")},
					at:    region{l.number("startIndex"), l.number("fileCompressedSize")},
				}
				if one.entry.Size < 0 || one.at.at < 0 || one.at.size < 0 || one.at.at > end || one.at.size > end-one.at.at {
					return nil, corrupt("%s of %s is outside", one.entry.Name, one.entry.Container)
				}
				if f.logs = append(f.logs, one); len(f.logs) > maxLogs {
					return nil, corrupt("it names more than %d logs", maxLogs)
				}
			}
		}
	}
	if w.left < 0 {
		return nil, corrupt("its index goes round in its lists")
	}
	slices.SortStableFunc(f.logs, func(a, b indexedLog) int {
		return cmp.Or(cmp.Compare(a.entry.Container, b.entry.Container), cmp.Compare(a.entry.Name, b.entry.Name))
	})
	return f, nil
}

func (f *indexed) close() {
	if f.log != nil {
		f.log.close()
		f.log = nil
	}
}

func (f *indexed) nextEntry() (Entry, error) {
	f.close()
	for ; f.next < len(f.logs); f.next++ {
		l := f.logs[f.next]
		if f.reader.Only != nil && !f.reader.Only(l.entry.Container) {
			continue
		}
		f.next++
		if l.at.size == 0 { // nothing was packed
			l.entry.Size = 0
		} else {
			var err error
			if f.log, err = f.blocks.open(l.at, f.blocks.compression); err != nil {
				return Entry{}, err
			}
		}
		f.left = l.entry.Size
		return l.entry, nil
	}
	return Entry{}, io.EOF
}

func (f *indexed) read(p []byte) (int, error) {
	if f.log == nil || f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.log.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	if errors.Is(err, io.EOF) { // it shrank while it was collected
		f.left = 0
		return n, io.EOF
	}
	if err != nil {
		return n, unpacked(err)
	}
	return n, nil
}

func (f *indexed) skip(n int64) error {
	f.left -= n
	if f.log == nil {
		return nil
	}
	return f.log.skip(n)
}

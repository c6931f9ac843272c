package aggregated

import (
	"encoding/binary"
	"errors"
	"io"
	"strconv"
)

// Entry is one file of a container.
type Entry struct {
	Container string
	Name      string // stdout, stderr
	Size      int64  // in bytes
}

// Reader gives a node's files one after the other, as archive/tar's does. It is for one
// goroutine.
type Reader struct {
	// Only says which containers are of interest; nil: all. The others are passed over.
	Only func(container string) bool

	blocks *blocks
	next   int     // of the blocks
	block  *block  // that is being read; nil between two
	value  *chunks // of the record that is being read; nil between two
	now    Entry
	left   int64 // of its file, in bytes
}

// NewReader reads a node's file of that many bytes. It fails with ErrFormat where it is
// none, with ErrCompression where it cannot be unpacked, else with ErrCorrupt or the
// file's own error. Close ends the reading, not the file's.
func NewReader(file io.ReadSeeker, size int64) (*Reader, error) {
	b, err := openBlocks(file, size)
	if err != nil {
		return nil, err
	}
	return &Reader{blocks: b}, nil
}

// Close frees what the reading holds.
func (r *Reader) Close() {
	if r.block != nil {
		r.block.close()
		r.block = nil
	}
}

// Next goes on to the next file, of which Read then reads; io.EOF after the last.
func (r *Reader) Next() (Entry, error) {
	for {
		if r.value != nil {
			more, err := r.file()
			if err != nil {
				return Entry{}, err
			}
			if more {
				return r.now, nil
			}
			r.value = nil
		}
		if r.block == nil {
			if r.next == len(r.blocks.data) {
				return Entry{}, io.EOF
			}
			var err error
			if r.block, err = r.blocks.open(r.blocks.data[r.next], r.blocks.compression); err != nil {
				return Entry{}, err
			}
			r.next++
		}
		if err := r.record(); err != nil {
			return Entry{}, err
		}
	}
}

// record goes on to the next container of the block, or ends the block.
func (r *Reader) record() error {
	if _, err := r.block.Peek(1); err != nil {
		r.Close()
		if errors.Is(err, io.EOF) {
			return nil
		}
		return unpacked(err)
	}
	key, err := readString(r.block)
	if err != nil {
		return err
	}
	// A key is a word of Java's: its length in two bytes, its bytes. Reserved ones tell of
	// the file.
	if len(key) < 2 || int(binary.BigEndian.Uint16([]byte(key))) != len(key)-2 {
		return corrupt("a record's name is not one")
	}
	r.now = Entry{Container: key[2:]}
	r.value, r.left = &chunks{block: r.block}, 0
	switch {
	case key[2:] == "VERSION" || key[2:] == "APPLICATION_ACL" || key[2:] == "APPLICATION_OWNER",
		r.Only != nil && !r.Only(key[2:]):
		value := r.value
		r.value = nil
		return value.skip()
	}
	return nil
}

// file goes on to the container's next file; false after its last.
func (r *Reader) file() (bool, error) {
	if err := r.value.discard(r.left); err != nil {
		return false, err
	}
	r.left = 0
	name, err := r.value.word()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	length, err := r.value.word()
	if err != nil {
		return false, tooSoon(err)
	}
	size, err := strconv.ParseInt(length, 10, 64)
	if err != nil || size < 0 {
		return false, corrupt("%s of %s is of %q bytes", name, r.now.Container, length)
	}
	r.now.Name, r.now.Size, r.left = name, size, size
	return true, nil
}

// Read reads of the file that Next gave. One that shrank while it was collected ends
// before its size.
func (r *Reader) Read(p []byte) (int, error) {
	if r.left == 0 || r.value == nil {
		return 0, io.EOF
	}
	n, err := r.value.Read(p[:min(int64(len(p)), r.left)])
	if r.left -= int64(n); errors.Is(err, io.EOF) {
		r.left = 0
	}
	return n, err
}

// SkipTo leaves out what comes before the last keep bytes of the file that Next gave,
// and tells whether that was anything. It is called before any Read of it.
func (r *Reader) SkipTo(keep int64) (bool, error) {
	over := r.left - keep
	if over <= 0 {
		return false, nil
	}
	r.left = keep
	return true, r.value.discard(over)
}

// chunks are a record's value.
type chunks struct {
	block *block
	left  int64 // of the chunk
	last  bool  // no other follows it
}

// more is whether anything is left, in a chunk that has been begun.
func (c *chunks) more() (bool, error) {
	for c.left == 0 {
		if c.last {
			return false, nil
		}
		n, err := readNumber(c.block)
		if err != nil {
			return false, unpacked(err)
		}
		// All but the last have their length negated.
		if c.left, c.last = max(n, -n), n >= 0; c.left < 0 {
			return false, corrupt("a chunk of %d bytes", n)
		}
	}
	return true, nil
}

func (c *chunks) Read(p []byte) (int, error) {
	more, err := c.more()
	if err != nil {
		return 0, err
	}
	if !more {
		return 0, io.EOF
	}
	n, err := c.block.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if err != nil {
		return n, unpacked(err)
	}
	return n, nil
}

// discard leaves out n bytes, or what there is.
func (c *chunks) discard(n int64) error {
	for n > 0 {
		more, err := c.more()
		if err != nil || !more {
			return err
		}
		some := min(n, c.left)
		if err := c.block.skip(some); err != nil {
			return err
		}
		n, c.left = n-some, c.left-some
	}
	return nil
}

// skip leaves out the rest.
func (c *chunks) skip() error {
	for {
		more, err := c.more()
		if err != nil || !more {
			return err
		}
		if err := c.discard(c.left); err != nil {
			return err
		}
	}
}

// word reads one of Java's: its length in two bytes, its bytes. io.EOF where nothing is
// left.
func (c *chunks) word() (string, error) {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:1]); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(c, size[1:]); err != nil {
		return "", tooSoon(err)
	}
	word := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, word); err != nil {
		return "", tooSoon(err)
	}
	return string(word), nil
}

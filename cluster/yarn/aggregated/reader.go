package aggregated

import (
	"encoding/binary"
	"errors"
	"io"
	"strconv"
)

// Entry is one log of a container.
type Entry struct {
	Container string
	Name      string // stdout, stderr
	Size      int64  // in bytes
}

// Reader returns the logs in a node's file one after the other, as archive/tar does. It is not safe for
// concurrent use.
type Reader struct {
	// Only, if it is not nil, reports whether a container is of interest. Others are skipped.
	Only func(container string) bool

	blocks *blocks
	next   int     // index of the next block
	block  *block  // the present block; nil between two blocks
	value  *chunks // value of the present record; nil between two records
	entry  Entry
	left   int64 // unread bytes of the present log
}

// NewReader returns a reader of a node's file with the given size. It returns ErrFormat if it is not a TFile,
// ErrCompression if its compression is not supported, and otherwise ErrCorrupt or the file's own error. Close
// does not close the file.
func NewReader(file io.ReadSeeker, size int64) (*Reader, error) {
	b, err := openBlocks(file, size)
	if err != nil {
		return nil, err
	}
	return &Reader{blocks: b}, nil
}

// Close releases the reader's resources.
func (r *Reader) Close() {
	if r.block != nil {
		r.block.close()
		r.block = nil
	}
}

// Next advances to the next log, which Read then reads. It returns io.EOF after the last one.
func (r *Reader) Next() (Entry, error) {
	for {
		if r.value != nil {
			more, err := r.nextFile()
			if err != nil {
				return Entry{}, err
			}
			if more {
				return r.entry, nil
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
		if err := r.nextRecord(); err != nil {
			return Entry{}, err
		}
	}
}

// nextRecord advances to the next container of the block, or ends the block.
func (r *Reader) nextRecord() error {
	if _, err := r.block.Peek(1); err != nil {
		r.Close()
		if errors.Is(err, io.EOF) {
			return nil
		}
		return blockError(err)
	}
	key, err := readString(r.block)
	if err != nil {
		return err
	}
	// A key is a string in Java's format: two bytes of length, and its bytes. Reserved keys have metadata of
	// the file.
	if len(key) < 2 || int(binary.BigEndian.Uint16([]byte(key))) != len(key)-2 {
		return corrupt("a record has an invalid key")
	}
	r.entry = Entry{Container: key[2:]}
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

// nextFile advances to the container's next log; it returns false after the last one.
func (r *Reader) nextFile() (bool, error) {
	if err := r.value.discard(r.left); err != nil {
		return false, err
	}
	r.left = 0
	name, err := r.value.javaString()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	length, err := r.value.javaString()
	if err != nil {
		return false, truncated(err)
	}
	size, err := strconv.ParseInt(length, 10, 64)
	if err != nil || size < 0 {
		return false, corrupt("%s of %s has a length of %q bytes", name, r.entry.Container, length)
	}
	r.entry.Name, r.entry.Size, r.left = name, size, size
	return true, nil
}

// Read reads from the present log. A log that shrank while it was uploaded ends before its size.
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

// SkipTo skips all but the last keep bytes of the present log, and reports whether it skipped any. It must be
// called before Read.
func (r *Reader) SkipTo(keep int64) (bool, error) {
	over := r.left - keep
	if over <= 0 {
		return false, nil
	}
	r.left = keep
	return true, r.value.discard(over)
}

// chunks reads a record's value.
type chunks struct {
	block *block
	left  int64 // of the present chunk
	last  bool  // it is the last one
}

// more reports whether the value has more bytes, and begins the next chunk if necessary.
func (c *chunks) more() (bool, error) {
	for c.left == 0 {
		if c.last {
			return false, nil
		}
		n, err := readNumber(c.block)
		if err != nil {
			return false, blockError(err)
		}
		// The length of all chunks but the last is negated.
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
		return n, blockError(err)
	}
	return n, nil
}

// discard skips n bytes, or fewer if the value ends.
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

// skip skips the rest of the value.
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

// javaString reads a string in Java's format: two bytes of length, and its bytes. It returns io.EOF at the
// end of the value.
func (c *chunks) javaString() (string, error) {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:1]); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(c, size[1:]); err != nil {
		return "", truncated(err)
	}
	word := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, word); err != nil {
		return "", truncated(err)
	}
	return string(word), nil
}

package bridge

import (
	"fmt"
	"os"
)

// Receiver is a reply that takes contents: bytes that Python passes beside the line of its answer, each in a file in
// memory. In the line they would be in memory several times.
type Receiver interface {
	// Receive takes the content of that name, which becomes the receiver's.
	Receive(name string, data []byte)
}

// passed are the contents that came with a line.
type passed struct {
	Contents []content `json:"contents"`

	files []*os.File // of Contents, in their order
	lost  error      // why there are no files
}

// content describes a file that came with a line.
type content struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// tooLong reports whether contents have more than limit bytes together.
func tooLong(contents []content, limit int64) bool {
	for _, c := range contents {
		if c.Bytes < 0 || c.Bytes > limit {
			return true
		}
		limit -= c.Bytes
	}
	return false
}

// close closes the files of a message. m may be nil.
func (m *gateMessage) close() {
	if m != nil {
		for _, f := range m.files {
			_ = f.Close() // it was only read
		}
	}
}

// hand reads the files of a message and gives their contents to reply, if that is a Receiver.
func (m *passed) hand(reply any) error {
	if m.lost != nil {
		return m.lost
	}
	receiver, ok := reply.(Receiver)
	if !ok {
		return nil
	}
	for n, c := range m.Contents {
		data, err := c.read(m.files[n])
		if err != nil {
			return err
		}
		receiver.Receive(c.Name, data)
	}
	return nil
}

// read returns the content of its file, which must have the stated size.
func (c *content) read(file *os.File) ([]byte, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // a pipe would block
		return nil, fmt.Errorf("%s is not in a file (%v)", c.Name, info.Mode())
	case info.Size() != c.Bytes:
		return nil, fmt.Errorf("the file of %s has %d bytes instead of %d", c.Name, info.Size(), c.Bytes)
	}
	data := make([]byte, c.Bytes)
	if _, err := file.ReadAt(data, 0); err != nil {
		return nil, fmt.Errorf("read the file of %s: %w", c.Name, err)
	}
	return data, nil
}

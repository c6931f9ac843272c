// Package jsonlines exchanges messages that are one line of JSON each. The processes of tfcluster on one host speak so
// over unix sockets; bytes may follow a line, and descriptors may come with it. The same in Python is
// cluster/python/tfcluster/jsonlines.py.
package jsonlines

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/unixsock"
)

// ErrTooLong is the error of a line that is longer than its reader allows.
var ErrTooLong = errors.New("a line of JSON is too long")

// keptBuffer is the largest buffer that a Reader keeps for the next line, in bytes.
const keptBuffer = 1 << 20

// Reader reads messages. It is not safe for concurrent use.
type Reader struct {
	in       *bufio.Reader
	limit    int
	line     []byte
	skipping bool      // the rest of a line that is too long
	passed   *receiver // nil: the connection passes no files
}

// NewReader returns a Reader of lines of up to limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, min(limit, 64<<10)), limit: limit}
}

// NewFileReader returns a Reader of lines of up to limit bytes, and of the files that come with them: see Take.
func NewFileReader(conn *net.UnixConn, limit int) *Reader {
	passed := &receiver{conn: conn}
	r := NewReader(passed, limit)
	r.passed = passed
	return r
}

// Next returns the next line without its end; it is valid until the next call. As soon as a line exceeds the limit Next
// returns ErrTooLong, and the next call continues after that line. For a line without an end it returns io.EOF alone.
func (r *Reader) Next() ([]byte, error) {
	if r.line = r.line[:0]; cap(r.line) > keptBuffer {
		r.line = nil
	}
	for {
		part, err := r.in.ReadSlice('\n')
		whole := err == nil
		switch {
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case r.skipping:
			r.skipping = !whole
			continue
		case len(r.line)+len(part) > r.limit:
			r.skipping = !whole
			return nil, ErrTooLong
		}
		if r.line = append(r.line, part...); whole {
			return r.line[:len(r.line)-1], nil
		}
	}
}

// Decode decodes the next line into v.
func (r *Reader) Decode(v any) error {
	line, err := r.Next()
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// Read reads bytes that follow a line.
func (r *Reader) Read(p []byte) (int, error) { return r.in.Read(p) }

// Take returns the next n files that were passed; the caller closes them. Files come no later than the line with which
// they were passed, in the order of lines: call Take for each line that has files. If fewer have come, Take closes
// them, because nothing shows which lines they belong to.
func (r *Reader) Take(n int) ([]*os.File, error) {
	var held []*os.File
	if r.passed != nil {
		held = r.passed.files
	}
	if n > len(held) {
		r.Close()
		return nil, fmt.Errorf("a line came with %d descriptors instead of %d", len(held), n)
	}
	if n == 0 {
		return nil, nil
	}
	r.passed.files = slices.Clone(held[n:])
	return held[:n:n], nil
}

// Close closes the files that nobody took. It leaves the connection open.
func (r *Reader) Close() {
	if r.passed == nil {
		return
	}
	for _, f := range r.passed.files {
		_ = f.Close() // nothing was written to it
	}
	r.passed.files = nil
}

// maxHeld is the largest number of files that wait for their lines.
const maxHeld = 64

// receiver reads from a connection, and keeps the files that come with the bytes.
type receiver struct {
	conn  *net.UnixConn
	files []*os.File
}

// Read implements io.Reader.
func (r *receiver) Read(p []byte) (int, error) {
	n, files, err := unixsock.Receive(r.conn, p)
	n = max(n, 0) // ReadMsgUnix returns -1 with some errors
	r.files = append(r.files, files...)
	switch {
	case errors.Is(err, io.EOF):
		return n, io.EOF // ReadMsgUnix wraps it
	case err == nil && len(r.files) > maxHeld:
		return n, errtext.Fault("%d descriptors came that no line has", len(r.files))
	}
	return n, err
}

// Writer writes messages. It is safe for concurrent use.
type Writer struct {
	conn    io.Writer
	timeout time.Duration

	mu   sync.Mutex
	torn error // guarded by mu: the error that has left a part of a line
}

// NewWriter returns a Writer to conn. If conn has write deadlines, each message must be written within timeout: a peer
// that is stopped must not block its writers.
func NewWriter(conn io.Writer, timeout time.Duration) *Writer {
	return &Writer{conn: conn, timeout: timeout}
}

// Write writes a message and passes files with its first byte, for which the connection must be a *net.UnixConn. After
// an error that has left a part of a line, every call returns that error: no line may follow.
func (w *Writer) Write(message any, files ...*os.File) error { return w.write(message, files, nil) }

// WriteBody writes a message, and the bytes that follow it.
func (w *Writer) WriteBody(message any, body io.Reader) error { return w.write(message, nil, body) }

// Torn reports whether the last line is not whole, so that nothing can be written any more.
func (w *Writer) Torn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.torn != nil
}

func (w *Writer) write(message any, files []*os.File, body io.Reader) error {
	line, err := json.Marshal(message)
	if err != nil {
		return errtext.Fault("encode a message: %w", err)
	}
	line = append(line, '\n')
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.torn != nil {
		return w.torn
	}
	if conn, ok := w.conn.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		_ = conn.SetWriteDeadline(time.Now().Add(w.timeout)) // fails for a closed connection, to which the write fails, too
	}
	var n int
	if len(files) > 0 {
		n, err = unixsock.Pass(w.conn.(*net.UnixConn), line, files...)
	} else {
		n, err = w.conn.Write(line)
	}
	if err == nil && body != nil {
		_, err = io.Copy(w.conn, body)
	}
	if err != nil && n > 0 {
		w.torn = err
	}
	return err
}

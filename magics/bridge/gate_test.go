package bridge

import (
	"os"
	"testing"
	"time"
)

// written is a connection that takes the first bytes of a line.
type written struct {
	bytes  int
	closed bool
}

func (w *written) Write([]byte) (int, error)        { return w.bytes, os.ErrDeadlineExceeded }
func (w *written) SetWriteDeadline(time.Time) error { return nil }
func (w *written) Close() error                     { w.closed = true; return nil }

// TestPartOfALine: a connection that has a part of a line is closed; one that has nothing of it may still be used.
func TestPartOfALine(t *testing.T) {
	t.Parallel()
	for _, conn := range []*written{{bytes: 0}, {bytes: 1}} {
		c := &caller{conn: conn}
		if err := c.send("line"); err == nil {
			t.Errorf("%d bytes: no error", conn.bytes)
		}
		if conn.closed != (conn.bytes > 0) {
			t.Errorf("%d bytes: it is closed: %v", conn.bytes, conn.closed)
		}
	}
}

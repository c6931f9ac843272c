package bridge

import (
	"os"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/internal/jsonlines"
)

// written is a connection that accepts the first bytes of a line, then fails.
type written struct {
	bytes  int
	closed bool
}

func (w *written) Write([]byte) (int, error)        { return w.bytes, os.ErrDeadlineExceeded }
func (w *written) SetWriteDeadline(time.Time) error { return nil }
func (w *written) Close() error                     { w.closed = true; return nil }

// TestPartOfALine: a connection is closed after a part of a line; it may still be used when nothing was written.
func TestPartOfALine(t *testing.T) {
	t.Parallel()
	for _, conn := range []*written{{bytes: 0}, {bytes: 1}} {
		c := &caller{conn: conn, out: jsonlines.NewWriter(conn, time.Minute)}
		if err := c.send("line"); err == nil {
			t.Errorf("%d bytes: no error", conn.bytes)
		}
		if conn.closed != (conn.bytes > 0) {
			t.Errorf("%d bytes: it is closed: %v", conn.bytes, conn.closed)
		}
	}
}

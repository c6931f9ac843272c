package zmtp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// pair returns the two ends of a TCP connection.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// Ensure a reader that does not block gives what was sent, then the end; and the errors of its
// connection: past the deadline, closed here, reset by the peer.
func TestNewReader(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	sent := bytes.Repeat([]byte("0123456789"), 1<<20)
	go func() {
		_, _ = a.Write(sent) // what is missing is noticed below
		_ = a.Close()
	}()
	if got, err := io.ReadAll(zmtp.NewReader(b)); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes, %v", len(got), len(sent), err)
	}
	for name, tt := range map[string]struct {
		do   func(here, peer net.Conn)
		want error
	}{
		"deadline": {
			func(here, _ net.Conn) { _ = here.SetDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded,
		},
		"closed": {func(here, _ net.Conn) { time.AfterFunc(time.Millisecond, func() { _ = here.Close() }) }, net.ErrClosed},
		"reset": {func(_, peer net.Conn) {
			_ = peer.(*net.TCPConn).SetLinger(0)
			_ = peer.Close()
		}, syscall.ECONNRESET},
	} {
		here, peer := pair(t)
		tt.do(here, peer)
		if n, err := zmtp.NewReader(here).Read(make([]byte, 1)); n != 0 || !errors.Is(err, tt.want) {
			t.Errorf("%s: %d bytes, %v, want %v", name, n, err, tt.want)
		}
	}
}

// Ensure a write that does not block writes a part if the peer does not read, and nothing to a
// closed connection.
func TestTryWrite(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	write := zmtp.TryWrite(a)
	much := make([]byte, 64<<20)
	n := 0
	for k := write(much); k > 0; k = write(much[n:]) {
		n += k
	}
	if n == 0 || n == len(much) {
		t.Errorf("wrote %d of %d bytes to a peer that does not read", n, len(much))
	}
	if _, err := io.CopyN(io.Discard, b, int64(n)); err != nil {
		t.Errorf("the peer does not get the %d bytes: %v", n, err)
	}
	_ = a.Close()
	if k := write(much); k != 0 {
		t.Errorf("wrote %d bytes to a closed connection", k)
	}
}

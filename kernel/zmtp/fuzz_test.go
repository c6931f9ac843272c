package zmtp

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzFrames feeds the frame parser: it must return messages within the limits or an error, and
// never allocate more memory than bytes arrived.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 1, 'a'})
	f.Add([]byte{1, 0, 0, 2, 'a', 'b'})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 1, 'a'})
	f.Add([]byte{2, 0x40, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte("\x04\x0a\x04PING\x00\x0actx"))
	f.Fuzz(func(t *testing.T, in []byte) {
		fr := &frameReader{r: bufio.NewReader(bytes.NewReader(in)), maxFrame: 1 << 20, maxMessage: 1 << 20, maxFrames: 8, allowed: allowance{trusted: true}}
		command := func(body []byte) error {
			name, data, err := parseCommand(body)
			if err == nil && len(name)+len(data)+1 != len(body) {
				t.Fatalf("command %q %q of %q", name, data, body)
			}
			return err
		}
		for {
			m, err := fr.message(command)
			if err != nil {
				return
			}
			if m.Size() > int64(len(in)) || len(m) > 8 {
				t.Fatalf("%d frames of %d bytes from %d bytes", len(m), m.Size(), len(in))
			}
		}
	})
}

// FuzzHandshake feeds a complete handshake.
func FuzzHandshake(f *testing.F) {
	ready := appendCommand(nil, "READY", appendProperty(appendProperty(nil, propSocketType, []byte("DEALER")), propIdentity, []byte("me")))
	f.Add(append(greeting(), ready...))
	f.Add(append(greeting(), appendCommand(nil, "ERROR", []byte{2, 'n', 'o'})...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(append(greeting(), 4, 6, 5, 'R', 'E', 'A', 'D', 'Y'))
	f.Fuzz(func(t *testing.T, in []byte) {
		nc := fakeConn{bytes.NewReader(in)}
		fr := &frameReader{r: bufio.NewReader(nc), maxFrame: 1 << 20, maxMessage: 1 << 20, maxFrames: 8, allowed: allowance{trusted: true}}
		identity, err := handshake(nc, fr, socketKind{"ROUTER", []string{"DEALER"}})
		if err == nil && (len(identity) > maxIdentity || len(identity) > 0 && identity[0] == 0) {
			t.Fatalf("identity %q was accepted", identity)
		}
	})
}

// fakeConn reads from a Reader and discards what is written.
type fakeConn struct{ io.Reader }

func (fakeConn) Write(p []byte) (int, error)      { return len(p), nil }
func (fakeConn) Close() error                     { return nil }
func (fakeConn) LocalAddr() net.Addr              { return nil }
func (fakeConn) RemoteAddr() net.Addr             { return nil }
func (fakeConn) SetDeadline(time.Time) error      { return nil }
func (fakeConn) SetReadDeadline(time.Time) error  { return nil }
func (fakeConn) SetWriteDeadline(time.Time) error { return nil }

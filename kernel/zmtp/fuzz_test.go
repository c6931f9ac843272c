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
		fr := &frameReader{
			r: bufio.NewReader(bytes.NewReader(in)), maxFrame: 1 << 20, maxMessage: 1 << 20, maxFrames: 8,
			allowed: allowance{trusted: true},
		}
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
	ready := appendCommand(nil, commandBody("READY",
		appendProperty(appendProperty(nil, propSocketType, []byte("DEALER")), propIdentity, []byte("me"))))
	f.Add(append(greeting(mechanismNull), ready...))
	f.Add(append(greeting(mechanismNull), appendCommand(nil, commandBody("ERROR", []byte{2, 'n', 'o'}))...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(append(greeting(mechanismNull), 4, 6, 5, 'R', 'E', 'A', 'D', 'Y'))
	f.Fuzz(func(t *testing.T, in []byte) {
		nc := fakeConn{bytes.NewReader(in)}
		fr := &frameReader{
			r: bufio.NewReader(nc), maxFrame: 1 << 20, maxMessage: 1 << 20, maxFrames: 8, allowed: allowance{trusted: true},
		}
		identity, _, err := performHandshake(nc, fr, socketKind{"ROUTER", []string{"DEALER"}}, nil)
		if err == nil && (len(identity) > maxIdentity || len(identity) > 0 && identity[0] == 0) {
			t.Fatalf("identity %q was accepted", identity)
		}
	})
}

// FuzzCurve feeds a CURVE server at each stage of its handshake, and after it: the bytes of a
// command, what a client encrypts in it, or frames. Only what the client made may be accepted.
func FuzzCurve(f *testing.F) {
	keys := serverKeys(0)
	kind := socketKind{"ROUTER", []string{"DEALER"}}
	genuine := func() (c *curveClient, s *curveServer, hello []byte) {
		random := counter(7)
		c = newCurveClient(keys, &random)
		return c, newCurveServer(keys, &random), c.hello()
	}
	_, _, hello := genuine()
	f.Add(byte(0), hello)
	f.Add(byte(0), hello[:199])
	random := counter(7)
	client, _, _ := connected(&random)
	frames := appendFrames(client.message(sealedMore, []byte("a")), client.message(sealedCommand, []byte("\x04PING")),
		client.message(0, []byte("b")))
	f.Add(byte(3), frames)
	f.Add(byte(3), append(frames, frames...))
	f.Add(byte(3), []byte("\x00\x03key"))
	f.Add(byte(2), dealerMetadata)
	f.Add(byte(4), []byte("\x01a"))
	f.Add(byte(4), []byte("\x02\x04PING\x00\x00ctx"))
	c, s, _ := genuine()
	if welcome, err := s.welcome(hello); err != nil || c.welcome(welcome) != nil {
		f.Fatal(err)
	}
	initiate := c.initiate(dealerMetadata)
	f.Add(byte(1), initiate)
	f.Add(byte(1), initiate[:257])
	f.Fuzz(func(t *testing.T, stage byte, in []byte) {
		c, s, _ := genuine()
		if stage == 0 {
			if _, err := s.welcome(in); err == nil && !sameHello(in, hello) {
				t.Fatalf("a forged HELLO was accepted: %x", in)
			}
			return
		}
		welcome, err := s.welcome(hello)
		if err != nil || c.welcome(welcome) != nil {
			t.Fatal(err)
		}
		switch stage {
		case 1:
			if _, err := s.initiate(in); err == nil && !bytes.Equal(in, initiate) {
				t.Fatalf("a forged INITIATE was accepted: %x", in)
			}
			return
		case 2:
			metadata, err := s.initiate(c.initiate(in))
			if err != nil || !bytes.Equal(metadata, in) {
				t.Fatalf("%x became %x, %v", in, metadata, err)
			}
			if identity, err := checkMetadata(metadata, kind); err == nil &&
				(len(identity) > maxIdentity || len(identity) > 0 && identity[0] == 0) {
				t.Fatalf("identity %q was accepted", identity)
			}
			return
		}
		if _, err := s.initiate(c.initiate(dealerMetadata)); err != nil {
			t.Fatal(err)
		}
		_, _, opener := s.ready(nil)
		if stage == 4 && len(in) > 0 {
			in = appendFrames(c.message(in[0], in[1:]))
		}
		fr := &frameReader{
			r: bufio.NewReader(bytes.NewReader(in)), maxFrame: 1 << 20, maxMessage: 1 << 20, maxFrames: 8,
			allowed: allowance{trusted: true}, opener: opener,
		}
		for {
			m, err := fr.message(func(body []byte) error { _, _, err := parseCommand(body); return err })
			if err != nil {
				return
			}
			for _, frame := range m {
				if stage != 4 && string(frame) != "a" && string(frame) != "b" {
					t.Fatalf("a forged frame was accepted: %q", frame)
				}
			}
		}
	})
}

// sameHello reports whether b is hello; the highest bit of a Curve25519 key has no meaning.
func sameHello(b, hello []byte) bool {
	b = bytes.Clone(b)
	b[111] = b[111]&0x7F | hello[111]&0x80
	return bytes.Equal(b, hello)
}

// appendFrames encodes bodies as frames of messages.
func appendFrames(bodies ...[]byte) []byte {
	var b []byte
	for _, body := range bodies {
		b = AppendMessage(b, Message{body})
	}
	return b
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

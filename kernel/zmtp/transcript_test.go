package zmtp

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
)

// transcript is what a client and a server sent, in hexadecimal.
type transcript struct {
	Note   string `json:"note"`
	Client string `json:"client"`
	Server string `json:"server"`
}

const transcriptFile = "testdata/curve_transcript.json"

// echoOnce serves a connection whose random numbers are known: it performs the handshake of a
// ROUTER and sends the first message back.
func echoOnce(nc net.Conn) (identity []byte, m Message, err error) {
	random := counter(100)
	fr := &frameReader{
		r: bufio.NewReader(nc), maxFrame: 1 << 20, maxMessage: 1 << 20, maxFrames: 8, allowed: allowance{trusted: true},
	}
	if err := greet(nc, fr.r, mechanismCurve); err != nil {
		return nil, nil, err
	}
	kind := socketKind{"ROUTER", []string{"DEALER"}}
	identity, out, err := curveHandshake(nc, fr, kind, newCurveServer(serverKeys(0), &random))
	if err != nil {
		return nil, nil, err
	}
	m, err = fr.message(func([]byte) error { return nil })
	if err != nil {
		return nil, nil, err
	}
	_, err = nc.Write(out.appendMessage(nil, m))
	return identity, m, err
}

// recorded is a connection that replays what a client sent and keeps what is written.
type recorded struct {
	fakeConn
	written bytes.Buffer
}

func (r *recorded) Write(p []byte) (int, error) { return r.written.Write(p) }

// Ensure a recorded connection of libzmq is served as it was: the same bytes, the client's
// identity and message. The client read the recorded answer, so it is right.
func TestCurveTranscript(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(transcriptFile)
	if err != nil {
		t.Fatal(err)
	}
	var tr transcript
	if err := json.Unmarshal(b, &tr); err != nil {
		t.Fatal(err)
	}
	sent, err := hex.DecodeString(tr.Client)
	if err != nil {
		t.Fatal(err)
	}
	nc := &recorded{fakeConn: fakeConn{bytes.NewReader(sent)}}
	identity, m, err := echoOnce(nc)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Message{[]byte("hello"), nil, []byte(strings.Repeat("x", 300))}); string(identity) != "libzmq" ||
		!slices.EqualFunc(m, want, bytes.Equal) {
		t.Errorf("%q sent %q", identity, m)
	}
	if got := hex.EncodeToString(nc.written.Bytes()); got != tr.Server {
		t.Errorf("answered\n%s, want\n%s", got, tr.Server)
	}
	for _, b := range [][]byte{sent, nc.written.Bytes()} {
		if bytes.Contains(b, []byte("xxxxxx")) || bytes.Contains(b, []byte("DEALER")) || bytes.Contains(b, []byte("ROUTER")) {
			t.Error("something was sent in clear text")
		}
	}
	if rest, _ := io.ReadAll(nc); len(rest) > 0 {
		t.Errorf("%d bytes were not read", len(rest))
	}
}

package zmtp

import (
	"bufio"
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
)

// Ensure a correct client is admitted with its metadata, and both sides then read each other's
// frames.
func TestCurveHandshake(t *testing.T) {
	t.Parallel()
	random := counter(7)
	client, out, in := connected(&random)
	for i, tt := range []struct {
		flags, sealed byte
		body          string
	}{{0, 0, ""}, {flagMore, sealedMore, "a"}, {flagCommand, sealedCommand, "\x04PING"}, {
		0, 0, strings.Repeat("x", 70_000),
	}} {
		flags, body, err := in.open(0, client.message(tt.sealed, []byte(tt.body)))
		if err != nil || flags != tt.flags || string(body) != tt.body {
			t.Errorf("frame %d: flags %d, %d bytes, %v", i, flags, len(body), err)
		}
		fr := frameReader{
			r: bufio.NewReader(bytes.NewReader(out.appendFrame(nil, tt.flags, []byte(tt.body)))), maxFrame: 1 << 20,
			allowed: allowance{trusted: true},
		}
		wireFlags, frame, err := fr.frame()
		if err != nil || wireFlags&^flagLong != 0 {
			t.Fatalf("frame %d: flags %d, %v", i, wireFlags, err)
		}
		sealed, body, err := client.open(frame)
		if err != nil || sealed != tt.sealed || string(body) != tt.body {
			t.Errorf("frame %d to the client: flags %d, %d bytes, %v", i, sealed, len(body), err)
		}
	}
}

// Ensure each flipped bit and each wrong length of HELLO and INITIATE is refused.
func TestCurveFlips(t *testing.T) {
	t.Parallel()
	random := counter(0)
	keys := serverKeys(0)
	client := newCurveClient(keys, &random)
	hello := client.hello()
	variants := func(b []byte) [][]byte {
		all := [][]byte{nil, b[:1], b[:len(b)-1], append(bytes.Clone(b), 0)}
		for i := range b {
			flipped := bytes.Clone(b)
			flipped[i] ^= 1
			all = append(all, flipped)
		}
		return all
	}
	for i, v := range variants(hello) {
		if _, err := newCurveServer(keys, &random).welcome(v); !errors.Is(err, ErrHandshake) {
			t.Errorf("HELLO %d: %v", i, err)
		}
	}
	server := newCurveServer(keys, &random)
	welcome, err := server.welcome(hello)
	if err == nil {
		err = client.welcome(welcome)
	}
	if err != nil {
		t.Fatal(err)
	}
	initiate := client.initiate(dealerMetadata)
	for i, v := range variants(initiate) {
		attempt := *server
		if _, err := attempt.initiate(v); !errors.Is(err, ErrHandshake) {
			t.Errorf("INITIATE %d: %v", i, err)
		}
	}
	if got, err := server.initiate(initiate); err != nil || !bytes.Equal(got, dealerMetadata) {
		t.Errorf("INITIATE itself: %q %v", got, err)
	}
}

// Ensure a client that does not follow the protocol is refused with the reason.
func TestCurveRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want      string
		before, between func(c *curveClient)
	}{
		{name: "key of another server", want: "it does not have the public key of this one", before: func(c *curveClient) {
			c.server = serverKeys(50).public
		}},
		{name: "nonce again", want: "a nonce is used again", between: func(c *curveClient) { c.nonce-- }},
		{name: "lower nonce", want: "a nonce is used again", before: func(c *curveClient) { c.nonce = math.MaxUint64 }},
		{name: "cookie of another connection", want: "another connection's cookie", between: func(c *curveClient) {
			other, random := newCurveClient(serverKeys(0), c.random), counter(99)
			welcome, err := newCurveServer(serverKeys(0), &random).welcome(other.hello())
			if err == nil {
				err = other.welcome(welcome)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.cookie = other.cookie
		}},
		{name: "public key of somebody else", want: "does not have the secret key", between: func(c *curveClient) {
			c.claimed = serverKeys(70).public
		}},
		{name: "public key of the server", want: "does not have the secret key", between: func(c *curveClient) {
			c.claimed = c.server
		}},
		{name: "vouch for another server", want: "does not have the secret key", between: func(c *curveClient) {
			c.vouchFor = serverKeys(50).public
		}},
		{name: "weak connection key", want: "a public key that protects nothing", before: func(c *curveClient) {
			c.short.public = new([keySize]byte)
		}},
		{name: "weak permanent key", want: "no usable key of its own", between: func(c *curveClient) {
			c.claimed = [keySize]byte{}
		}},
		{name: "session of other keys", want: "its INITIATE does not decrypt", between: func(c *curveClient) {
			c.session[0] ^= 1
		}},
	} {
		random := counter(3)
		keys := serverKeys(0)
		client, server := newCurveClient(keys, &random), newCurveServer(keys, &random)
		if tt.before != nil {
			tt.before(client)
		}
		welcome, err := server.welcome(client.hello())
		if err == nil {
			if err := client.welcome(welcome); err != nil {
				t.Fatal(err)
			}
			if tt.between != nil {
				tt.between(client)
			}
			_, err = server.initiate(client.initiate(dealerMetadata))
		}
		if !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}

// Ensure a changed, repeated, reordered or malformed MESSAGE is refused, and that the last nonce
// stays.
func TestCurveMessages(t *testing.T) {
	t.Parallel()
	random := counter(7)
	client, _, in := connected(&random)
	first, second, third := client.message(0, []byte("1")), client.message(0, []byte("2")), client.message(0, []byte("3"))
	refuse := func(name string, flags byte, b []byte) {
		t.Helper()
		if _, body, err := in.open(flags, b); !errors.Is(err, ErrBadFrame) {
			t.Errorf("%s: %q %v", name, body, err)
		}
	}
	accept := func(b []byte, want string) {
		t.Helper()
		if _, body, err := in.open(0, b); err != nil || string(body) != want {
			t.Errorf("%q %v, want %q", body, err, want)
		}
	}
	for i := range first {
		flipped := bytes.Clone(first)
		flipped[i] ^= 1
		refuse("flipped", 0, flipped)
	}
	refuse("in parts", flagMore, first)
	refuse("empty", 0, nil)
	refuse("short", 0, first[:messageSize-1])
	refuse("unencrypted", 0, []byte("a message that is not encrypted at all"))
	accept(second, "2") // first was lost
	refuse("reordered", 0, first)
	refuse("repeated", 0, second)
	refuse("unknown flags", 0, client.message(4, nil))
	accept(client.message(0, []byte("4")), "4")
	refuse("reordered", 0, third)
	refuse("a command in parts", 0, client.message(sealedKnown, nil))
	// What the server sent does not pass as the client's.
	server := &sealer{key: in.key, nonce: 1000}
	refuse("reflected", 0, server.appendFrame(nil, 0, []byte("x"))[shortHeader:])
}

package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/crypto/nacl/box"
)

// counter is a random source that is not: its bytes are 0, 1, 2 … from a start.
type counter byte

func (c *counter) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(*c)
		*c++
	}
	return len(p), nil
}

// keyPair makes a pair of keys.
type keyPair struct{ public, secret *[keySize]byte }

func newPair(random io.Reader) keyPair {
	public, secret, err := box.GenerateKey(random)
	if err != nil {
		panic(err)
	}
	return keyPair{public, secret}
}

// serverKeys returns a server's permanent keys, the same for each start.
func serverKeys(start counter) *CurveKeys {
	pair := newPair(&start)
	return &CurveKeys{public: *pair.public, secret: *pair.secret}
}

// curveClient is the client's side of a handshake, as RFC 26 describes it. A test may change
// its fields to have it misbehave.
type curveClient struct {
	server           [keySize]byte // S
	vouchFor         [keySize]byte // the server in the vouch
	claimed          [keySize]byte // C as sent
	permanent, short keyPair       // C and C'
	nonce            uint64
	random           io.Reader

	connection *[keySize]byte // S'
	cookie     []byte
	session    [keySize]byte
}

func newCurveClient(server *CurveKeys, random io.Reader) *curveClient {
	c := &curveClient{
		server: server.public, vouchFor: server.public, permanent: newPair(random), short: newPair(random), nonce: 1,
		random: random,
	}
	c.claimed = *c.permanent.public
	return c
}

// next returns the next short nonce.
func (c *curveClient) next() []byte {
	b := binary.BigEndian.AppendUint64(nil, c.nonce)
	c.nonce++
	return b
}

func (c *curveClient) long() []byte {
	b := make([]byte, longNonce)
	if _, err := io.ReadFull(c.random, b); err != nil {
		panic(err)
	}
	return b
}

func (c *curveClient) hello() []byte {
	short := c.next()
	b := slices.Concat([]byte(helloName), []byte{1, 0}, make([]byte, 72), c.short.public[:], short)
	return box.Seal(b, make([]byte, 64), nonce("CurveZMQHELLO---", short), &c.server, c.short.secret)
}

func (c *curveClient) welcome(b []byte) error {
	if len(b) != 168 || string(b[:8]) != welcomeName {
		return fmt.Errorf("WELCOME of %d bytes", len(b))
	}
	plain, ok := box.Open(nil, b[24:], nonce("WELCOME-", b[8:24]), &c.server, c.short.secret)
	if !ok || len(plain) != 128 {
		return errors.New("WELCOME does not decrypt")
	}
	c.connection, c.cookie = (*[keySize]byte)(plain), plain[32:]
	box.Precompute(&c.session, c.connection, c.short.secret)
	return nil
}

func (c *curveClient) initiate(metadata []byte) []byte {
	long := c.long()
	vouch := box.Seal(nil, append(bytes.Clone(c.short.public[:]), c.vouchFor[:]...), nonce("VOUCH---", long), c.connection,
		c.permanent.secret)
	short := c.next()
	b := slices.Concat([]byte(initiateName), c.cookie, short)
	plain := slices.Concat(c.claimed[:], long, vouch, metadata)
	return box.SealAfterPrecomputation(b, plain, nonce("CurveZMQINITIATE", short), &c.session)
}

func (c *curveClient) ready(b []byte) (metadata []byte, err error) {
	if len(b) < 30 || string(b[:6]) != readyName {
		return nil, fmt.Errorf("READY of %d bytes", len(b))
	}
	metadata, ok := box.OpenAfterPrecomputation(nil, b[14:], nonce("CurveZMQREADY---", b[6:14]), &c.session)
	if !ok {
		return nil, errors.New("READY does not decrypt")
	}
	return metadata, nil
}

// message returns the body of a MESSAGE with these flags.
func (c *curveClient) message(flags byte, body []byte) []byte {
	short := c.next()
	b := append([]byte(messageName), short...)
	return box.SealAfterPrecomputation(b, append([]byte{flags}, body...), nonce(messageToServer, short), &c.session)
}

// open returns the flags and body of a MESSAGE of the server.
func (c *curveClient) open(b []byte) (flags byte, body []byte, err error) {
	if len(b) < messageSize || string(b[:8]) != messageName {
		return 0, nil, fmt.Errorf("MESSAGE of %d bytes", len(b))
	}
	plain, ok := box.OpenAfterPrecomputation(nil, b[16:], nonce(messageToClient, b[8:16]), &c.session)
	if !ok {
		return 0, nil, errors.New("MESSAGE does not decrypt")
	}
	return plain[0], plain[1:], nil
}

var dealerMetadata = appendProperty(appendProperty(nil, propSocketType, []byte("DEALER")), propIdentity, []byte("me"))

// connected performs a handshake without a network and returns both sides.
func connected(random io.Reader) (*curveClient, *sealer, *opener) {
	keys := serverKeys(0)
	client, server := newCurveClient(keys, random), newCurveServer(keys, random)
	welcome, err := server.welcome(client.hello())
	if err == nil {
		err = client.welcome(welcome)
	}
	if err == nil {
		_, err = server.initiate(client.initiate(dealerMetadata))
	}
	ready, out, in := server.ready(nil)
	if err == nil {
		_, err = client.ready(ready)
	}
	if err != nil {
		panic(err)
	}
	return client, out, in
}

package zmtp

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"golang.org/x/crypto/curve25519"
	"golang.org/x/crypto/nacl/box"
	"golang.org/x/crypto/nacl/secretbox"
)

// The commands of the CURVE handshake (https://rfc.zeromq.org/spec/26/), in order, and their
// sizes. C and S are the permanent keys of client and server, C' and S' those of the
// connection, in lower case the secret ones.
const (
	helloName    = "\x05HELLO"
	welcomeName  = "\x07WELCOME"
	initiateName = "\x08INITIATE"
	readyName    = "\x05READY"

	helloSize    = 200
	cookieSize   = longNonce + 2*keySize + box.Overhead
	vouchSize    = keySize + longNonce + 2*keySize + box.Overhead // with C before it
	initiateSize = len(initiateName) + cookieSize + shortNonce + vouchSize + box.Overhead

	shortNonce = 8
	longNonce  = 16
	nonceSize  = 24
)

// curveServer is the server's side of one handshake. Its methods are called once each, in the
// order welcome, initiate, ready.
type curveServer struct {
	keys   *CurveKeys
	random io.Reader

	cookieKey [keySize]byte
	cookie    []byte        // as sent
	peerNonce uint64        // the client's last short nonce
	session   [keySize]byte // C' and S' combined, once initiate has succeeded
}

// newCurveServer returns a server that takes its random numbers from random.
func newCurveServer(keys *CurveKeys, random io.Reader) *curveServer {
	return &curveServer{keys: keys, random: random}
}

// welcome checks HELLO and returns WELCOME.
func (s *curveServer) welcome(hello []byte) ([]byte, error) {
	if len(hello) != helloSize || string(hello[:len(helloName)]) != helloName {
		return nil, fmt.Errorf("%w: its first command is not a HELLO, so it does not speak CURVE", ErrHandshake)
	}
	version, padding := hello[6:8], hello[8:80]
	if version[0] != 1 || version[1] != 0 || !allZero(padding) {
		return nil, fmt.Errorf("%w: its HELLO is malformed: it may use another version of CURVE", ErrHandshake)
	}
	client, short := (*[keySize]byte)(hello[80:112]), hello[112:120]
	if isWeak(client) {
		return nil, fmt.Errorf("%w: it sent a public key that protects nothing, as no Jupyter client does", ErrHandshake)
	}
	zeros, ok := box.Open(nil, hello[120:], nonce("CurveZMQHELLO---", short), client, &s.keys.secret)
	if !ok || !allZero(zeros) {
		return nil, fmt.Errorf("%w: the peer encrypts for another server: it does not have the public key of this one",
			ErrHandshake)
	}
	s.peerNonce = binary.BigEndian.Uint64(short)
	public, secret, err := box.GenerateKey(s.random)
	if err != nil {
		return nil, err
	}
	long := make([]byte, 2*longNonce)
	for _, b := range [][]byte{s.cookieKey[:], long} {
		if _, err := io.ReadFull(s.random, b); err != nil {
			return nil, err
		}
	}
	forCookie, forWelcome := long[:longNonce], long[longNonce:]
	s.cookie = secretbox.Seal(bytes.Clone(forCookie), slices.Concat(client[:], secret[:]), nonce("COOKIE--", forCookie),
		&s.cookieKey)
	answer := append([]byte(welcomeName), forWelcome...)
	return box.Seal(answer, slices.Concat(public[:], s.cookie), nonce("WELCOME-", forWelcome), client, &s.keys.secret), nil
}

// initiate checks INITIATE and returns the client's metadata. The secret key of the connection
// is in the cookie. The client must prove that it has the secret key of C, which may be any.
func (s *curveServer) initiate(body []byte) (metadata []byte, err error) {
	if len(body) < initiateSize || string(body[:len(initiateName)]) != initiateName {
		return nil, fmt.Errorf("%w: its second command is not an INITIATE", ErrHandshake)
	}
	cookie, rest := body[len(initiateName):len(initiateName)+cookieSize], body[len(initiateName)+cookieSize:]
	if subtle.ConstantTimeCompare(cookie, s.cookie) == 0 {
		return nil, fmt.Errorf("%w: its INITIATE has another connection's cookie", ErrHandshake)
	}
	short := rest[:shortNonce]
	if err := s.advance(short); err != nil {
		return nil, err
	}
	// It is the cookie that was sent.
	keys, _ := secretbox.Open(nil, cookie[longNonce:], nonce("COOKIE--", cookie[:longNonce]), &s.cookieKey)
	client, secret := (*[keySize]byte)(keys[:keySize]), (*[keySize]byte)(keys[keySize:])
	box.Precompute(&s.session, client, secret)
	plain, ok := box.OpenAfterPrecomputation(nil, rest[shortNonce:], nonce("CurveZMQINITIATE", short), &s.session)
	if !ok {
		return nil, fmt.Errorf("%w: its INITIATE does not decrypt, so it was changed on the way", ErrHandshake)
	}
	permanent, long := (*[keySize]byte)(plain[:keySize]), plain[keySize:keySize+longNonce]
	if isWeak(permanent) {
		return nil, fmt.Errorf("%w: the client gave no usable key of its own: set curve_publickey and curve_secretkey "+
			"beside curve_serverkey", ErrHandshake)
	}
	vouch, ok := box.Open(nil, plain[keySize+longNonce:vouchSize], nonce("VOUCH---", long), permanent, secret)
	if !ok || subtle.ConstantTimeCompare(vouch, slices.Concat(client[:], s.keys.public[:])) == 0 {
		return nil, fmt.Errorf("%w: the peer does not have the secret key of its public key", ErrHandshake)
	}
	return plain[vouchSize:], nil
}

// isWeak reports whether a public key is a point of low order: everybody knows what it shares with any secret key.
func isWeak(public *[keySize]byte) bool {
	_, err := curve25519.X25519(bytes.Repeat([]byte{8}, keySize), public[:])
	return err != nil
}

// advance takes the client's next short nonce, which must be higher than the last.
func (s *curveServer) advance(short []byte) error {
	n := binary.BigEndian.Uint64(short)
	if n <= s.peerNonce {
		return fmt.Errorf("%w: a nonce is used again, as by one who repeats a recorded connection", ErrHandshake)
	}
	s.peerNonce = n
	return nil
}

// ready returns READY with the server's metadata, and the ciphers of the connection.
func (s *curveServer) ready(metadata []byte) ([]byte, *sealer, *opener) {
	out := &sealer{key: s.session, nonce: 1}
	short := binary.BigEndian.AppendUint64(nil, out.nonce)
	answer := append([]byte(readyName), short...)
	answer = box.SealAfterPrecomputation(answer, metadata, nonce("CurveZMQREADY---", short), &s.session)
	return answer, out, &opener{key: s.session, last: s.peerNonce}
}

// nonce returns the nonce of a box: its purpose and the part that was sent.
func nonce(purpose string, sent []byte) *[nonceSize]byte {
	var n [nonceSize]byte
	copy(n[copy(n[:], purpose):], sent)
	return &n
}

func allZero(b []byte) bool {
	return subtle.ConstantTimeCompare(b, make([]byte, len(b))) == 1
}

// curveHandshake exchanges the commands of CURVE after the greetings and returns the identity
// chosen by the peer. From then on fr decrypts; what is sent must pass the sealer. A refused
// client is told so: libzmq then does not connect again.
func curveHandshake(nc net.Conn, fr *frameReader, kind socketKind,
	s *curveServer,
) (identity []byte, out *sealer, err error) {
	metadata, err := curveExchange(nc, fr, s)
	if err == nil {
		identity, err = checkMetadata(metadata, kind)
	}
	if errors.Is(err, ErrHandshake) {
		sendRefusal(nc, err)
	}
	if err != nil {
		return nil, nil, err
	}
	ready, out, in := s.ready(ownMetadata(kind))
	if err := sendCommand(nc, ready); err != nil {
		return nil, nil, err
	}
	fr.opener = in
	return identity, out, nil
}

// curveExchange exchanges the commands before READY and returns the client's metadata.
func curveExchange(nc net.Conn, fr *frameReader, s *curveServer) (metadata []byte, err error) {
	hello, err := readCommand(fr, "HELLO", helloSize)
	if err != nil {
		return nil, err
	}
	welcome, err := s.welcome(hello)
	if err != nil {
		return nil, err
	}
	if err := sendCommand(nc, welcome); err != nil {
		return nil, err
	}
	body, err := readCommand(fr, "INITIATE", initiateSize+maxReady)
	if err != nil {
		return nil, err
	}
	return s.initiate(body)
}

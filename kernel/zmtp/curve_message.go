package zmtp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/crypto/nacl/box"
)

// A frame of a CURVE connection is a MESSAGE: name, short nonce, and the box of its flags and
// body. The frame around it always is the last of its message and, as libzmq sends it, has no
// flag of a command.
const (
	messageName = "\x07MESSAGE"
	messageHead = len(messageName) + shortNonce
	messageSize = messageHead + box.Overhead + 1 // of an empty frame

	messageToServer = "CurveZMQMESSAGEC"
	messageToClient = "CurveZMQMESSAGES"

	sealedMore    = 1 << 0
	sealedCommand = 1 << 1
	sealedKnown   = sealedMore | sealedCommand
)

// sealer encrypts the frames to one peer. Calls must not overlap, and frames must be sent in
// the order of calls, because the peer refuses a nonce that is not higher than the last.
type sealer struct {
	key   [keySize]byte
	nonce uint64 // the last one; 2^64 frames are never reached
}

// appendFrame appends the encoded, encrypted frame to b. flags are those of the plain frame.
func (s *sealer) appendFrame(b []byte, flags byte, body []byte) []byte {
	var sealed byte
	if flags&flagMore != 0 {
		sealed |= sealedMore
	}
	if flags&flagCommand != 0 {
		sealed |= sealedCommand
	}
	s.nonce++
	b = appendHeader(slices.Grow(b, longHeader+messageSize+len(body)), 0, messageSize+len(body))
	at := len(b)
	b = append(append(append(b, make([]byte, boxBefore)...), sealed), body...)
	var short [shortNonce]byte
	binary.BigEndian.PutUint64(short[:], s.nonce)
	sealInPlace(b[at:], nonce(messageToClient, short[:]), &s.key)
	copy(b[at+copy(b[at:], messageName):], short[:])
	return b
}

// appendMessage appends the encoded, encrypted frames of a message to b.
func (s *sealer) appendMessage(b []byte, m Message) []byte {
	for i, f := range m {
		b = s.appendFrame(b, moreFlag(m, i), f)
	}
	return b
}

// opener decrypts the frames of one peer, in order.
type opener struct {
	key  [keySize]byte
	last uint64 // nonce
}

// open decrypts a frame that was received with flags, in its place, and returns the flags in it and its body. A
// frame that was changed, left out of its order or sent before ends the connection.
func (o *opener) open(flags byte, sealed []byte) (inner byte, body []byte, err error) {
	switch {
	case flags&flagMore != 0:
		return 0, nil, fmt.Errorf("%w: a MESSAGE in parts", ErrBadFrame)
	case len(sealed) < messageSize || string(sealed[:len(messageName)]) != messageName:
		return 0, nil, fmt.Errorf("%w: not a MESSAGE", ErrBadFrame)
	}
	short := sealed[len(messageName):messageHead]
	n := binary.BigEndian.Uint64(short)
	if n <= o.last {
		return 0, nil, fmt.Errorf("%w: a MESSAGE whose nonce is used already", ErrBadFrame)
	}
	plain, ok := openInPlace(sealed, nonce(messageToServer, short), &o.key)
	if !ok {
		return 0, nil, fmt.Errorf("%w: a MESSAGE that does not decrypt", ErrBadFrame)
	}
	o.last = n
	if plain[0]&^sealedKnown != 0 || plain[0] == sealedKnown {
		return 0, nil, fmt.Errorf("%w: flags %#02x of a MESSAGE", ErrBadFrame, plain[0])
	}
	if plain[0]&sealedMore != 0 {
		inner |= flagMore
	}
	if plain[0]&sealedCommand != 0 {
		inner |= flagCommand
	}
	return inner, plain[1:], nil
}

package zmtp

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"golang.org/x/crypto/curve25519"
)

// CurveKeys is the permanent key pair of a CURVE server. Printing it, or a pointer to it, shows no key.
type CurveKeys struct{ public, secret [keySize]byte }

// Errors of ParseCurveKeys; they contain no part of a key.
var (
	ErrCurveKey  = errors.New("a CURVE key is 32 bytes in Z85, which are 40 characters")
	ErrCurvePair = errors.New("the public key does not belong to the secret key")
)

const (
	keySize = 32
	keyText = 40 // of a key in Z85
)

// ParseCurveKeys parses a key pair in Z85 (https://rfc.zeromq.org/spec/32/).
func ParseCurveKeys(public, secret string) (*CurveKeys, error) {
	k := &CurveKeys{}
	if !decodeKey(&k.public, public) {
		return nil, fmt.Errorf("the public key is malformed: %w", ErrCurveKey)
	}
	if !decodeKey(&k.secret, secret) {
		return nil, fmt.Errorf("the secret key is malformed: %w", ErrCurveKey)
	}
	derived, err := curve25519.X25519(k.secret[:], curve25519.Basepoint)
	if err != nil || subtle.ConstantTimeCompare(derived, k.public[:]) == 0 {
		return nil, ErrCurvePair
	}
	return k, nil
}

// Format implements fmt.Formatter for every verb, so that no log contains a key.
func (CurveKeys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "CURVE keys") }

const z85Digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// decodeKey decodes a key: each five digits are four bytes.
func decodeKey(key *[keySize]byte, text string) bool {
	if len(text) != keyText {
		return false
	}
	for i := range keySize / 4 {
		var n uint64
		for _, c := range []byte(text[5*i : 5*i+5]) {
			digit := strings.IndexByte(z85Digits, c)
			if digit < 0 {
				return false
			}
			n = n*85 + uint64(digit)
		}
		if n > math.MaxUint32 {
			return false
		}
		binary.BigEndian.PutUint32(key[4*i:], uint32(n))
	}
	return true
}

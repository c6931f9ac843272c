package zmtp

import (
	"golang.org/x/crypto/poly1305" //nolint:staticcheck // deprecated for other uses: a box of NaCl is made of it
	"golang.org/x/crypto/salsa20"
)

// The box of a MESSAGE is made and opened where it lies: package secretbox needs a second copy of the body. In the
// layout of NaCl, 32 bytes stand before the plain text. XSalsa20 over the whole makes the key of Poly1305 of them, if
// they are zero. A MESSAGE has as many bytes there: its head and the tag, which are written afterwards.
const (
	boxBefore = 32
	tagSize   = poly1305.TagSize // the last of boxBefore
)

// sealInPlace encrypts b, whose first boxBefore bytes are zero, and writes the tag into the last of these.
func sealInPlace(b []byte, nonce *[nonceSize]byte, key *[keySize]byte) {
	salsa20.XORKeyStream(b, b, nonce[:], key)
	once := [keySize]byte(b[:boxBefore])
	poly1305.Sum((*[tagSize]byte)(b[boxBefore-tagSize:]), b[boxBefore:], &once)
}

// openInPlace decrypts what follows the first boxBefore bytes of b and returns it; b is changed only if the tag, the
// last of these bytes, is right.
func openInPlace(b []byte, nonce *[nonceSize]byte, key *[keySize]byte) (plain []byte, ok bool) {
	var once [keySize]byte
	salsa20.XORKeyStream(once[:], once[:], nonce[:], key)
	if tag := [tagSize]byte(b[boxBefore-tagSize:]); !poly1305.Verify(&tag, b[boxBefore:], &once) {
		return nil, false
	}
	clear(b[:boxBefore])
	salsa20.XORKeyStream(b, b, nonce[:], key)
	return b[boxBefore:], true
}

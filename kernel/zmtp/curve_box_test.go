package zmtp

import (
	"bytes"
	"crypto/rand"
	"errors"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/crypto/nacl/box"
)

// Ensure a box that is made in its place is NaCl's, and that one which was changed is not opened and stays as it is.
func TestBoxInPlace(t *testing.T) {
	t.Parallel()
	var key [keySize]byte
	var nonce [nonceSize]byte
	for size := range 300 {
		plain := make([]byte, size)
		for _, b := range [][]byte{key[:], nonce[:], plain} {
			if _, err := rand.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		b := slices.Concat(make([]byte, boxBefore), plain)
		sealInPlace(b, &nonce, &key)
		if want := box.SealAfterPrecomputation(nil, plain, &nonce, &key); !bytes.Equal(b[messageHead:], want) {
			t.Fatalf("%d bytes: %x, want %x", size, b[messageHead:], want)
		}
		changed := bytes.Clone(b)
		changed[messageHead+size%(size+box.Overhead)] ^= 1 << (size % 8)
		before := bytes.Clone(changed)
		if got, ok := openInPlace(changed, &nonce, &key); ok || got != nil || !bytes.Equal(changed, before) {
			t.Errorf("%d bytes, changed, are opened: %v %x", size, ok, got)
		}
		if got, ok := openInPlace(b, &nonce, &key); !ok || !bytes.Equal(got, plain) {
			t.Fatalf("%d bytes: %v %x", size, ok, got)
		}
	}
}

// Ensure a frame is encrypted in the buffer that is written, and decrypted in the one that was read.
func TestOneCopyOfFrame(t *testing.T) {
	const size = 16 << 20
	client, out, in := connected(rand.Reader)
	body, buffer := make([]byte, size), make([]byte, 0, size+4096)
	sealed := client.message(0, body)
	for what, do := range map[string]func() error{
		"sent": func() error {
			if b := out.appendFrame(buffer, 0, body); &b[0] != &buffer[:1][0] {
				return errors.New("in another buffer")
			}
			return nil
		},
		"received": func() error {
			_, _, err := in.open(0, sealed)
			return err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := do()
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; err != nil || used > size/2 {
			t.Errorf("a frame of %d bytes, %s: %d more bytes were allocated; %v", size, what, used, err)
		}
	}
}

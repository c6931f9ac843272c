package zmtp

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"
)

var frameSizes = []int{1 << 10, 64 << 10, 16 << 20}

// BenchmarkSend encrypts and writes one frame.
func BenchmarkSend(b *testing.B) {
	for _, size := range frameSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			_, out, _ := connected(rand.Reader)
			w := writer{nc: fakeConn{}, seal: out}
			batch := []entry{{message: Message{make([]byte, size)}}}
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := w.write(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReceive reads and decrypts one frame.
func BenchmarkReceive(b *testing.B) {
	for _, size := range frameSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			client, _, in := connected(rand.Reader)
			frame := appendFrames(client.message(0, make([]byte, size)))
			last, r := in.last, bytes.NewReader(nil)
			fr := &frameReader{
				r: bufio.NewReaderSize(r, 64<<10), maxFrame: 1 << 30, allowed: allowance{trusted: true}, opener: in,
			}
			b.SetBytes(int64(size))
			for b.Loop() {
				in.last = last // the same frame each time
				r.Reset(frame)
				fr.r.Reset(r)
				if _, _, err := fr.frame(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package transport

import (
	"fmt"
	"testing"
)

// BenchmarkWrite measures a write and its answer, an empty write.
func BenchmarkWrite(b *testing.B) {
	for _, w := range ways(b) {
		for _, size := range []int{0, 4 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("%s/%d", w.name, size), func(b *testing.B) {
				here, there := linked(b, w, 1, 16<<20)
				go func() {
					for range there.Completions() {
						if err := there.Write(b.Context(), Place{}, nil, 0); err != nil {
							return
						}
					}
				}()
				data := make([]byte, size)
				b.SetBytes(int64(size))
				for b.Loop() {
					here.write(b, Place{}, data, 0)
					<-here.Completions()
				}
			})
		}
	}
}

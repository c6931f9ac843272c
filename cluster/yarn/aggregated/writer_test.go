package aggregated

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"testing"
)

// writer writes files in the format of NodeManagers.
type writer struct {
	t           testing.TB
	compression string
	chunk       int // maximum size of a chunk; 0 for a single chunk
	out         bytes.Buffer
	regions     []string // encoded
	block       bytes.Buffer
}

func newWriter(t testing.TB, compression string, chunk int) *writer {
	w := &writer{t: t, compression: compression, chunk: chunk}
	w.out.Write(magic)
	w.record("VERSION", string([]byte{0, 0, 0, 1}))
	w.record("APPLICATION_OWNER", javaString("somebody"))
	return w
}

// number encodes an integer as Utils.writeVLong does.
func number(n int64) string {
	if -32 <= n && n < 128 {
		return string([]byte{byte(n)})
	}
	abs := n
	if n < 0 {
		abs = ^n
	}
	size := 1
	for abs>>(8*size-1) > 0 {
		size++
	}
	var all [9]byte
	binary.BigEndian.PutUint64(all[1:], uint64(n))
	high := func(size int) int64 { return n >> (8 * (size - 1)) }
	switch {
	case size <= 2 && -20 <= high(2) && high(2) < 20:
		return string([]byte{byte(high(2) - 52), all[8]})
	case size <= 3 && -16 <= high(3) && high(3) < 16:
		return string([]byte{byte(high(3) - 88), all[7], all[8]})
	case size <= 4 && -8 <= high(4) && high(4) < 8:
		return string([]byte{byte(high(4) - 112), all[6], all[7], all[8]})
	}
	size = max(size, 4)
	return string([]byte{byte(size - 129)}) + string(all[9-size:])
}

// javaString encodes a string in Java's format, vString one in TFile's format.
func javaString(s string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(s)))) + s
}
func vString(s string) string { return number(int64(len(s))) + s }

func (w *writer) record(name, value string) {
	w.block.WriteString(vString(javaString(name)))
	for w.chunk > 0 && len(value) > w.chunk {
		w.block.WriteString(number(int64(-w.chunk)) + value[:w.chunk])
		value = value[w.chunk:]
	}
	w.block.WriteString(vString(value))
}

// container adds a container with its logs: names and contents alternate.
func (w *writer) container(name string, files ...string) {
	var value string
	for i := 0; i < len(files); i += 2 {
		value += javaString(files[i]) + javaString(decimal(len(files[i+1]))) + files[i+1]
	}
	w.record(name, value)
}

// end ends the present block.
func (w *writer) end() {
	w.regions = append(w.regions, w.put(w.block.String()))
	w.block.Reset()
}

// put writes a block and returns its encoded position.
func (w *writer) put(content string) string {
	at := w.out.Len()
	if w.compression == "gz" {
		z := zlib.NewWriter(&w.out)
		if _, err := z.Write([]byte(content)); err != nil {
			w.t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			w.t.Fatal(err)
		}
	} else {
		w.out.WriteString(content)
	}
	return number(int64(at)) + number(int64(w.out.Len()-at)) + number(int64(len(content)))
}

// close ends the file and returns it.
func (w *writer) close() []byte {
	w.end()
	index := vString(w.compression) + number(int64(len(w.regions)))
	for _, r := range w.regions {
		index += r
	}
	at := w.put(index)
	other := w.put("unused")
	end := w.out.Len()
	w.out.WriteString(number(2))
	w.out.WriteString(vString("data:TFile.meta") + vString(w.compression) + other)
	w.out.WriteString(vString("data:BCFile.index") + vString(w.compression) + at)
	w.out.Write(binary.BigEndian.AppendUint64(nil, uint64(end)))
	w.out.Write([]byte{0, 1, 0, 0})
	w.out.Write(magic)
	return w.out.Bytes()
}

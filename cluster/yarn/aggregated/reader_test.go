package aggregated

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

func decimal(n int) string { return strconv.Itoa(n) }

// dump returns one line for each log in a file, with the length and the end of large ones.
func dump(file []byte, only func(string) bool) (string, error) {
	r, err := NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return "", err
	}
	defer r.Close()
	r.Only = only
	var found strings.Builder
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found.String(), nil
		}
		if err != nil {
			return found.String(), err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return found.String(), err
		}
		if len(b) > 100 {
			b = fmt.Appendf(nil, "%d bytes, the last are %q", len(b), b[len(b)-5:])
		}
		fmt.Fprintf(&found, "%s %s %d: %s\n", e.Container, e.Name, e.Size, b)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{
		0, 1, -1, 127, 128, -32, -33, 255, 256, 5119, 5120, -5120, -5121, 1<<20 - 1, 1 << 20, -1 << 20, -1<<20 - 1, 134217727,
		134217728, -134217728, -134217729, math.MaxInt32, math.MinInt32, math.MaxInt32 + 1, 1 << 40, -1 << 40, 1 << 50,
		-1 << 57, math.MaxInt64, math.MinInt64,
	} {
		if got, err := readNumber(strings.NewReader(number(n))); err != nil || got != n {
			t.Errorf("%d is read as %d: %v", n, got, err)
		}
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789", 30_000) + "last\n"
	want := fmt.Sprintf(`container_1_0001_01_000002 stdout 0: 
container_1_0001_01_000002 stderr 4: why

container_1_0001_01_000003 stderr %d: %d bytes, the last are "last\n"
container_1_0001_01_000003 stdout 3: out
container_1_0001_01_000004 stderr 4: end

`, len(big), len(big))
	for _, compression := range []string{"none", "gz"} {
		for _, chunk := range []int{0, 1, 1000, 100_000} {
			w := newWriter(t, compression, chunk)
			w.container("container_1_0001_01_000002", "stdout", "", "stderr", "why\n")
			w.container("container_1_0001_01_000003", "stderr", big, "stdout", "out")
			w.end()
			w.container("container_1_0001_01_000004", "stderr", "end\n")
			file := w.close()
			if got, err := dump(file, nil); err != nil || got != want {
				t.Errorf("%s in chunks of %d: %v\n%s", compression, chunk, err, got)
			}
			got, err := dump(file, func(c string) bool { return strings.HasSuffix(c, "4") })
			if err != nil || got != "container_1_0001_01_000004 stderr 4: end\n\n" {
				t.Errorf("%s in chunks of %d, one container: %v\n%s", compression, chunk, err, got)
			}
		}
	}
}

// countingReader counts the bytes that are read.
type countingReader struct {
	io.ReadSeeker
	read int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.ReadSeeker.Read(p)
	c.read += int64(n)
	return n, err
}

// TestSkips: containers and bytes that are skipped are not read.
func TestSkips(t *testing.T) {
	t.Parallel()
	w := newWriter(t, "none", 1<<20)
	w.container("container_1_0001_01_000002", "stderr", strings.Repeat("x", 20<<20), "stdout", "out")
	w.container("container_1_0001_01_000003", "stderr", strings.Repeat("y", 20<<20)+"the end")
	file := w.close()
	c := &countingReader{ReadSeeker: bytes.NewReader(file)}
	r, err := NewReader(c, int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Only = func(name string) bool { return strings.HasSuffix(name, "3") }
	e, err := r.Next()
	if err != nil || e.Size != 20<<20+7 {
		t.Fatalf("%v: %v", e, err)
	}
	if left, err := r.SkipTo(10); err != nil || !left {
		t.Errorf("nothing was skipped: %v", err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "yyythe end" {
		t.Errorf("the end is %q: %v", b, err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
	if most := int64(50 * pageSize); c.read > most {
		t.Errorf("%d bytes of %d were read, want at most %d", c.read, len(file), most)
	}
}

func TestBroken(t *testing.T) {
	t.Parallel()
	good := func() *writer {
		w := newWriter(t, "none", 0)
		w.container("container_1_0001_01_000002", "stderr", "why\n")
		return w
	}
	lzo := good()
	lzo.compression = "lzo"
	file := good().close()
	changed := func(at int, to ...byte) []byte {
		b := bytes.Clone(file)
		copy(b[(at+len(b))%len(b):], to)
		return b
	}
	shrunk := newWriter(t, "none", 0)
	shrunk.record("container_1_0001_01_000002", javaString("stderr")+javaString("100")+"half")
	odd := newWriter(t, "none", 0)
	odd.record("container_1_0001_01_000002", javaString("stderr")+javaString("-4")+"half")
	for _, tt := range []struct {
		name string
		file []byte
		want error
	}{
		{"empty", nil, ErrFormat},
		{"another format", bytes.Repeat([]byte("x"), 1000), ErrFormat},
		{"another version", changed(-20, 0, 2), ErrFormat},
		{"the second half", file[len(file)/2:], ErrCorrupt},
		{"truncated", file[:len(file)-1], ErrCorrupt},
		{"an index outside the file", changed(-28, 1), ErrCorrupt},
		{"unsupported compression", lzo.close(), ErrCompression},
		{"not compressed", bytes.ReplaceAll(file, []byte("\x04none"), []byte("\x02gz\x00\x00")), ErrCorrupt},
		{"a negative length", odd.close(), ErrCorrupt},
		{"shrunk", shrunk.close(), nil},
	} {
		got, err := dump(tt.file, nil)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v\n%s", tt.name, err, tt.want, got)
		}
	}
}

// TestStorageError: a file is not called corrupt when the connection to its storage ends.
func TestStorageError(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("read /x: %w", io.ErrUnexpectedEOF)
	file := iotest.ErrReader(lost)
	_, err := NewReader(struct {
		io.Reader
		io.Seeker
	}{file, bytes.NewReader(nil)}, 1000)
	if !errors.Is(err, lost) || errors.Is(err, ErrCorrupt) {
		t.Errorf("error %v, want %v", err, lost)
	}
}

// TestGolden reads files of a NodeManager 3.3.6, written without its files on how containers were started
// (yarn.nodemanager.log-container-debug-info.enabled), which contain names of the machine.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"none", "gz"} {
		file, err := os.ReadFile("testdata/node." + name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := dump(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("testdata/node." + name + ".txt")
		if err != nil || got != string(want) {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}

// otherFormat is the extension of a NodeManager's file in Hadoop's other format, IFile.
const otherFormat = "ifile"

// TestOtherFormat: a file in Hadoop's other format is distinguished from a corrupt one.
func TestOtherFormat(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/node." + otherFormat)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewReader(bytes.NewReader(file), int64(len(file))); !errors.Is(err, ErrFormat) {
		t.Errorf("the error is %v", err)
	}
}

func FuzzReader(f *testing.F) {
	for _, compression := range []string{"none", "gz"} {
		w := newWriter(f, compression, 7)
		w.container("container_1_0001_01_000002", "stdout", "", "stderr", "why did it end?\n")
		w.end()
		w.container("container_1_0001_01_000003", "stderr", "end\n")
		f.Add(w.close())
	}
	for _, name := range []string{"none", "gz", otherFormat} {
		golden, err := os.ReadFile("testdata/node." + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(golden)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		defer r.Close()
		for range 1000 {
			e, err := r.Next()
			if err != nil {
				return
			}
			if e.Size < 0 {
				t.Fatalf("%v has a negative size", e)
			}
			if _, err := r.SkipTo(5); err != nil {
				return
			}
			if n, err := io.Copy(io.Discard, r); n > 5 {
				t.Fatalf("%d bytes are left, want at most 5: %v", n, err)
			}
		}
	})
}

package jsonlines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/internal/unixsock"
)

type message struct {
	Op   string `json:"op"`
	Text string `json:"text,omitempty"`
}

// TestReader: a line that is too long is refused, and the lines after it are read; a line that is not whole is none.
func TestReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	r := NewReader(strings.NewReader(`{"op":"a"}`+"\n"+`{"op":"`+long+`"}`+"\n\n"+`{"op":"b"}`+"\nbody"+`{"op":"c"}`), 50)
	var got []string
	for {
		var m message
		switch err := r.Decode(&m); {
		case errors.Is(err, io.EOF):
			if text := strings.Join(got, " "); text != "a long invalid b body" {
				t.Errorf("read %s", text)
			}
			return
		case errors.Is(err, ErrTooLong):
			got = append(got, "long")
		case err != nil:
			got = append(got, "invalid")
		default:
			got = append(got, m.Op)
		}
		if m.Op == "b" {
			body := make([]byte, 4)
			if _, err := io.ReadFull(r, body); err != nil {
				t.Fatal(err)
			}
			got = append(got, string(body))
		}
	}
}

// TestLineWithoutEnd: a line is refused as soon as it is too long.
func TestLineWithoutEnd(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	go func() { _, _ = out.Write(bytes.Repeat([]byte("x"), 1000)) }() // ends when the test closes in
	defer in.Close()
	if _, err := NewReader(in, 500).Next(); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
}

// TestFiles: files and bodies come with their lines.
func TestFiles(t *testing.T) {
	t.Parallel()
	a, b, err := unixsock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	w := NewWriter(a, time.Second)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err == nil {
		_, err = file.WriteString("content")
	}
	if err == nil {
		err = w.Write(message{Op: "file"}, file)
	}
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n, files, err := unixsock.Receive(b, buffer)
	if err != nil || len(files) != 1 || string(buffer[:n]) != `{"op":"file"}`+"\n" {
		t.Fatalf("received %q, %d files: %v", buffer[:n], len(files), err)
	}
	defer files[0].Close()
	if n, err := files[0].ReadAt(buffer, 0); string(buffer[:n]) != "content" {
		t.Errorf("the file has %q: %v", buffer[:n], err)
	}
	if err := w.WriteBody(message{Op: "body"}, strings.NewReader("12345")); err != nil {
		t.Fatal(err)
	}
	r := NewReader(b, 100)
	var m message
	body := make([]byte, 5)
	if err := errors.Join(r.Decode(&m), func() error { _, err := io.ReadFull(r, body); return err }()); err != nil ||
		m.Op != "body" || string(body) != "12345" {
		t.Errorf("%+v %q: %v", m, body, err)
	}
}

// TestTake: files come with their lines, also where several lines are read at once; those that nobody took are closed.
func TestTake(t *testing.T) {
	t.Parallel()
	a, b, err := unixsock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	w := NewWriter(a, time.Second)
	one := []*os.File{write}
	sent := []struct {
		op    string
		files []*os.File
	}{{"none", nil}, {"two", []*os.File{read, write}}, {"one", one}, {"missing", nil}, {"more", one}}
	for _, m := range sent {
		if err := w.Write(message{Op: m.op}, m.files...); err != nil {
			t.Fatal(err)
		}
	}
	_ = a.Close()
	_ = write.Close()
	r := NewFileReader(b, 100)
	wants := []struct {
		op    string
		files int
		fails bool
	}{{"none", 0, false}, {"two", 2, false}, {"one", 1, false}, {"missing", 2, true}, {"more", 0, false}}
	for _, want := range wants {
		var m message
		if err := r.Decode(&m); err != nil || m.Op != want.op {
			t.Fatalf("%s: %+v %v", want.op, m, err)
		}
		files, err := r.Take(want.files)
		if (err != nil) != want.fails || err == nil && len(files) != want.files {
			t.Errorf("%s: %d files: %v", want.op, len(files), err)
		}
		for _, f := range files {
			_ = f.Close()
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	r.Close()
	if err := read.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(read); err != nil { // ends when no descriptor of write is open
		t.Errorf("a descriptor stays open: %v", err)
	}
}

// TestTooManyFiles: a reader does not keep any number of files that no line has.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	a, b, err := unixsock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	w, r := NewWriter(a, time.Second), NewFileReader(b, 100)
	defer r.Close()
	for range maxHeld + 1 {
		if err := w.Write(message{Op: "x"}, os.Stdin); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = r.Next()
	if !strings.Contains(fmt.Sprint(err), "no line has") {
		t.Errorf("%d files: %v", maxHeld+1, err)
	}
}

// TestTorn: nothing is written after a part of a line, and a peer that reads nothing blocks no writer for long.
func TestTorn(t *testing.T) {
	t.Parallel()
	a, b, err := unixsock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	w := NewWriter(a, 50*time.Millisecond)
	err = w.Write(message{Op: "long", Text: strings.Repeat("x", 64<<20)})
	if !errors.Is(err, os.ErrDeadlineExceeded) || !w.Torn() {
		t.Fatalf("a line beyond the socket's buffer: %v, torn: %t", err, w.Torn())
	}
	if again := w.Write(message{Op: "short"}); again == nil || again.Error() != err.Error() {
		t.Errorf("after a part of a line: %v", again)
	}
	_ = a.Close()
	rest, err := io.ReadAll(b)
	if err != nil || bytes.Contains(rest, []byte("short")) {
		t.Errorf("the peer has %d bytes: %v", len(rest), err)
	}
	closed := NewWriter(a, time.Second)
	if err := closed.Write(message{Op: "x"}); !errors.Is(err, net.ErrClosed) || closed.Torn() {
		t.Errorf("to a closed connection: %v, torn: %t", err, closed.Torn())
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("{}\n"), 3)
	f.Add([]byte("\n\n{\"op\":1}\n"), 100)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		limit = 1 + max(limit, -limit)%(1<<16)
		r := NewReader(bytes.NewReader(data), limit)
		for range len(data) + 1 {
			line, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && (len(line) >= limit || bytes.Contains(line, []byte("\n"))) {
				t.Fatalf("a line of %d bytes with a limit of %d", len(line), limit)
			}
		}
		t.Fatal("the reader does not end")
	})
}

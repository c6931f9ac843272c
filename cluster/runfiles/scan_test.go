package runfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestAFileThatNeverSettles: a file that changes oftener than it settles is sent nevertheless, as it
// is at a moment of rest; one that does not rest holds up no other.
func TestAFileThatNeverSettles(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	const weights, busy = "run-001/checkpoints/w", "run-001/busy/b"
	for n := range 3 { // it changes between any two rounds
		e.write("checkpoints/w", strings.Repeat("x", n+1))
		e.round(false)
	}
	b.want()
	e.write("checkpoints/w", "at rest")
	e.write("busy/b", "0")
	e.round(false)
	e.late(weights)
	e.late(busy)
	stop := e.changing("busy/b")
	e.write("checkpoints/w", "changed again")
	e.round(false)
	stop()
	b.want(weights)
	if got := read(t, b.disk.dir, weights); got != "changed again" {
		t.Errorf("it is %q", got)
	}
	e.write("checkpoints/w", "once more")
	e.round(false) // a file that was sent waits for maxUnsent again
	if got := read(t, b.disk.dir, weights); got != "changed again" {
		t.Errorf("right behind it came %q", got)
	}
}

// TestRefusedNames: a file whose name the driver refuses holds up no other, and is reported.
func TestRefusedNames(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	for _, name := range []string{
		"export/ok", `export\model.keras`, "run.json", "tasks/mine", "export/\xff", `logs\events.out.tfevents.1`,
		"not\xffutf/w", strings.Repeat("d/", 600) + "deep",
	} {
		e.write(name, "x")
	}
	e.round(true)
	b.want("run-001/export/ok")
	names, err := e.Refused()
	if len(names) != 7 || !errors.Is(err, ErrRefused) ||
		!strings.Contains(err.Error(), "a name contains a backslash, a name is not UTF-8, a path has") {
		t.Errorf("refused: %q, %v", names, err)
	}
	for i := range maxRefused {
		e.write(fmt.Sprintf(`many\%d`, i), "x")
	}
	e.round(true)
	if names, _ = e.Refused(); len(names) != maxRefused {
		t.Errorf("%d names of %d are returned", len(names), 7+maxRefused)
	}
	for _, name := range names {
		if !utf8.ValidString(name) {
			t.Errorf("%q is not UTF-8", name)
		}
	}
}

// TestUnreadableFile: a file that may not be read holds up no other, and is reported.
func TestUnreadableFile(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("root may read every file")
	}
	b := newBed(t)
	e := b.executor("0")
	e.write("export/ok", "x")
	e.write("export/mine", "x")
	if err := os.Chmod(filepath.Join(e.root.Name(), "run-001/export/mine"), 0); err != nil {
		t.Fatal(err)
	}
	e.round(true)
	b.want("run-001/export/ok")
	if names, err := e.Refused(); len(names) != 1 || !errors.Is(err, ErrRefused) {
		t.Errorf("refused: %q, %v", names, err)
	}
}

// late sets a file's time so that it has been unsent for maxUnsent.
func (e *executor) late(name string) {
	version := e.seen[name]
	version.unsent = time.Now().Add(-maxUnsent)
	e.seen[name] = version
}

// changing changes a file all the time until stop is called. It also changes it whenever it is about to be copied, for
// a machine on which the changes pause longer than a lull.
func (e *executor) changing(name string) (stop func()) {
	quit, stopped := make(chan struct{}), make(chan struct{})
	copies := 0
	e.Sender.written = func(f *os.File) (bool, bool) {
		if filepath.Base(f.Name()) == filepath.Base(name) {
			copies++
			e.write(name, strings.Repeat("c", 100+copies))
		}
		return written(f)
	}
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-quit:
				return
			case <-time.After(lull / 20):
				e.write(name, strings.Repeat("b", n%100))
			}
		}
	}()
	return func() {
		close(quit)
		<-stopped
		e.Sender.written = written
	}
}

// TestHalfWrittenFileIsNotSent: a file that a process is writing does not replace the last complete version at
// the driver, also on a file system without leases.
func TestHalfWrittenFileIsNotSent(t *testing.T) {
	t.Parallel()
	const model = "run-001/checkpoints/model.h5"
	for what, known := range map[string]bool{"with leases": true, "without leases": false} {
		b := newBed(t)
		e := b.executor("0")
		if !known {
			e.Sender.written = func(*os.File) (bool, bool) { return false, false }
		}
		e.write("checkpoints/model.h5", "whole")
		e.round(true)
		f, err := os.Create(filepath.Join(e.dir, model)) // it stays open, and the program pauses
		if err == nil {
			_, err = f.WriteString("ha")
		}
		if err != nil {
			t.Fatal(err)
		}
		e.round(false)
		e.late(model)
		e.touch(model)
		e.round(false)
		if got := read(t, b.disk.dir, model); got != "whole" {
			t.Errorf("%s: the driver has %q", what, got)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if known {
			e.late(model)
			e.touch(model)
			e.round(false)
			if got := read(t, b.disk.dir, model); got != "ha" {
				t.Errorf("%s: after it was closed the driver has %q", what, got)
			}
		}
	}
}

// touch changes a file's modification time.
func (e *executor) touch(name string) {
	e.t.Helper()
	if err := os.Chtimes(filepath.Join(e.dir, name), time.Time{}, time.Now().Add(time.Second)); err != nil {
		e.t.Fatal(err)
	}
}

// TestFilesOfAFolderAreCopiedTogether: the driver has the same generation of all files of a checkpoint.
func TestFilesOfAFolderAreCopiedTogether(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	const data, index = "run-001/checkpoints/w.data-00000-of-00001", "run-001/checkpoints/w.index"
	save := func(generation string) {
		e.write("checkpoints/w.data-00000-of-00001", generation)
		e.write("checkpoints/w.index", generation)
	}
	same := func(want string) {
		t.Helper()
		if d, i := read(t, b.disk.dir, data), read(t, b.disk.dir, index); d != want || i != want {
			t.Errorf("the driver has the data of generation %q and the index of generation %q, want %q", d, i, want)
		}
	}
	save("1")
	e.round(true)
	save("22")
	e.round(false)
	e.late(data) // the index was sent later than the data
	save("333")
	e.round(false)
	same("333")
	save("4444")
	e.round(false)
	e.late(data)
	e.late(index)
	save("55555")
	stop := e.changing("checkpoints/w.index")
	e.round(false)
	stop()
	same("333")
}

// TestCopiedFileWaitsAgain: after a copy was sent the file waits for maxUnsent again, also if it changed between
// the scan and the copy.
func TestCopiedFileWaitsAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	const weights = "run-001/checkpoints/w"
	e.write("checkpoints/w", "1")
	e.round(false)
	e.late(weights)
	e.write("checkpoints/w", "22")
	e.Sender.written = func(*os.File) (bool, bool) { // between the scan and the copy
		e.Sender.written = written
		e.write("checkpoints/w", "333")
		return true, true
	}
	e.round(false)
	if got := read(t, b.disk.dir, weights); got != "333" {
		t.Fatalf("the driver has %q", got)
	}
	e.write("checkpoints/w", "4444")
	e.round(false)
	if got := read(t, b.disk.dir, weights); got != "333" {
		t.Errorf("the driver has %q in the next round", got)
	}
}

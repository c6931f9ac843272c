package logstore

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// disk opens segments that fail once room bytes are written, until room is raised.
type disk struct {
	room  atomic.Int64
	opens atomic.Int64
}

const plenty = 1 << 40

func newDisk() *disk {
	d := &disk{}
	d.room.Store(plenty)
	return d
}

func (d *disk) open(path string) (io.WriteCloser, error) {
	d.opens.Add(1)
	f, err := openSegment(path)
	return &diskFile{f, d}, err
}

type diskFile struct {
	io.WriteCloser
	disk *disk
}

// Write writes as much as there is room for, like a disk that becomes full during a write.
func (f *diskFile) Write(b []byte) (int, error) {
	n := int(min(int64(len(b)), max(0, f.disk.room.Load())))
	f.disk.room.Add(-int64(n))
	if _, err := f.WriteCloser.Write(b[:n]); err != nil || n == len(b) {
		return n, err
	}
	return n, &os.PathError{Op: "write", Path: "segment", Err: syscall.ENOSPC}
}

// written is a store under test on such a disk, with one stream.
type written struct {
	*Store
	t       *testing.T
	disk    *disk
	n       int      // lines appended
	notices []string // not locked: Append calls notify in the goroutine of the test
}

func writeTo(t *testing.T, dir string, quota Quota) *written {
	t.Helper()
	w := &written{Store: NewStore(dir, quota, nil), t: t, disk: newDisk()}
	w.open = w.disk.open
	w.notify = func(text string) { w.notices = append(w.notices, text) }
	return w
}

// lines appends n lines, one per second, in batches of the given size.
func (w *written) lines(n, batch int) {
	for n > 0 {
		b := &clusterpb.LogBatch{Run: 1, Task: "worker:0", Attempt: 1, First: uint64(w.n)}
		for range min(n, batch) {
			b.Lines = append(b.Lines, stored(w.n))
			w.n++
			n--
		}
		if next := w.Append(b); next != uint64(w.n) {
			w.t.Errorf("Append returned %d, want %d", next, w.n)
		}
	}
}

func stored(n int) *clusterpb.Line {
	return &clusterpb.Line{
		UnixNano: stamp(n).UnixNano(), Text: fmt.Sprintf("line %d", n), Stream: clusterpb.Line_Stream(n % 2),
	}
}

func stamp(n int) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local).Add(time.Duration(n) * time.Second)
}

// retry ends the pause before the next attempt to write.
func (w *written) retry() {
	st := w.streams[streamKey{1, "worker:0"}]
	st.writing.Lock()
	defer st.writing.Unlock()
	st.retryAt = time.Time{}
}

// TestFullDiskIsReported: the beginning and the end of an outage are reported once each, not
// each failed write; and the store does not try to write every batch.
func TestFullDiskIsReported(t *testing.T) {
	t.Parallel()
	w := writeTo(t, t.TempDir(), DefaultQuota())
	w.lines(1, 1)
	w.disk.room.Store(0)
	opens := w.disk.opens.Load()
	w.lines(100, 1)
	if tried := w.disk.opens.Load() - opens; tried > 50 {
		t.Errorf("the store tried %d times", tried)
	}
	w.disk.room.Store(plenty)
	w.retry()
	w.lines(1, 1)
	root := filepath.Join(w.dir, "run-001", "tasks")
	if len(w.notices) != 2 || !strings.HasSuffix(w.notices[0], "task output cannot be written to "+filepath.Dir(root)+
		": no space left on device") ||
		!strings.HasPrefix(w.notices[1], "task output is written again; 100 lines are missing") {
		t.Errorf("messages: %q", w.notices)
	}
	if files, err := filepath.Glob(filepath.Join(root, "worker-0", "*")); err != nil || len(files) != 2 {
		t.Errorf("the segments are %v: %v", files, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestFullDiskWithoutMoreLines: the gap is recorded once there is room, even if no more lines
// arrive.
func TestFullDiskWithoutMoreLines(t *testing.T) {
	t.Parallel()
	w := writeTo(t, t.TempDir(), DefaultQuota())
	notices := make(chan string, 2)
	w.notify = func(text string) { notices <- text }
	w.lines(5, 1)
	w.disk.room.Store(0)
	w.lines(5, 1)
	<-notices
	w.disk.room.Store(plenty)
	select {
	case <-notices:
	case <-time.After(time.Minute):
		t.Fatal("the gap is not recorded")
	}
	reads(t, w.Store, Query{}, "0-4 | worker:0: 5 lines were not kept: no space left on device, 03:04:10 to 03:04:14")
	w.lines(5, 1)
	reads(t, w.Store, Query{},
		"0-4 | worker:0: 5 lines were not kept: no space left on device, 03:04:10 to 03:04:14 | 10-14")
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestSubscribersSeeUnstoredLines: subscribers receive all lines while the disk is full.
func TestSubscribersSeeUnstoredLines(t *testing.T) {
	t.Parallel()
	w := writeTo(t, t.TempDir(), DefaultQuota())
	var got []string
	_, leave := w.Subscribe(1, func(lines []*clusterpb.Line) {
		for _, l := range lines {
			got = append(got, l.GetText())
		}
	})
	w.lines(3, 1)
	w.disk.room.Store(20)
	w.lines(10, 4)
	w.disk.room.Store(plenty)
	w.retry()
	w.lines(3, 1)
	leave()
	w.lines(1, 1)
	for i, text := range got {
		if text != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d is %q", i, text)
		}
	}
	if len(got) != 16 {
		t.Errorf("%d lines arrived", len(got))
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestCountsDoNotWait: methods that read counts return while a write hangs, as on an
// unreachable file server.
func TestCountsDoNotWait(t *testing.T) {
	t.Parallel()
	s := NewStore(t.TempDir(), DefaultQuota(), nil)
	hangs, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.open = func(path string) (io.WriteCloser, error) {
		once.Do(func() { close(hangs) })
		<-goOn
		return openSegment(path)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Append(&clusterpb.LogBatch{Run: 1, Task: "worker:0", Attempt: 1, Lines: []*clusterpb.Line{stored(0)}})
	}()
	<-hangs
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		_, leave := s.Subscribe(1, func([]*clusterpb.Line) {})
		leave()
		s.Lines(1)
		s.Reached(1, "worker:0", 1)
	}()
	select {
	case <-looked:
	case <-time.After(time.Minute):
		t.Error("a count waits for the disk")
	}
	close(goOn)
	<-done
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

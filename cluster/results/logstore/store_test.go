package logstore

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// reads compares the outline of a query's result with want: "0-4 | gap | 7-9".
func reads(t *testing.T, s *Store, q Query, want string) {
	t.Helper()
	q.Run = 1
	lines, gaps, err := s.Read(q)
	if err != nil {
		t.Fatal(err)
	}
	if got := outline(lines, gaps); got != want {
		t.Errorf("%+v returns\n%s, want\n%s", q, got, want)
	}
}

// outline returns a short form of lines and gaps.
func outline(lines []*clusterpb.Line, gaps []Gap) string {
	var parts []string
	first, last := -1, -1
	end := func() {
		if first >= 0 {
			parts = append(parts, fmt.Sprintf("%d-%d", first, last))
		}
		first = -1
	}
	for i := 0; i <= len(lines); i++ {
		for _, g := range gaps {
			if g.Before == i {
				end()
				parts = append(parts, g.String())
			}
		}
		if i == len(lines) {
			break
		}
		var n int
		if _, err := fmt.Sscanf(lines[i].GetText(), "line %d", &n); err != nil || int(lines[i].GetSeq()) != n ||
			lines[i].GetUnixNano() != stamp(n).UnixNano() {
			parts = append(parts, fmt.Sprintf("bad line %v", lines[i]))
		}
		if first >= 0 && n != last+1 {
			end()
		}
		if first < 0 {
			first = n
		}
		last = n
	}
	end()
	return strings.Join(parts, " | ")
}

// TestStore: stored lines are read by the same store, by the next driver and by a reader of the
// folder.
func TestStore(t *testing.T) {
	t.Parallel()
	small := Quota{Task: 1 << 30, Cluster: 1 << 30, Segment: 400} // about ten lines
	for _, tt := range []struct {
		name  string
		quota Quota
		write func(*written)
		want  string
	}{
		{"nothing", small, func(*written) {}, ""},
		{"one segment", DefaultQuota(), func(w *written) { w.lines(100, 7) }, "0-99"},
		{"many segments", small, func(w *written) { w.lines(100, 1) }, "0-99"},
		{"batches longer than a segment", small, func(w *written) { w.lines(100, 40) }, "0-99"},
		{"the quota", Quota{Task: 1200, Cluster: 1 << 30, Segment: 400}, func(w *written) {
			w.lines(100, 1)
		}, "worker:0: the oldest 80 lines are gone (quota) | 80-99"},
		{"a batch that is sent again", DefaultQuota(), func(w *written) {
			w.lines(10, 10)
			w.n = 5
			w.lines(10, 10)
		}, "0-14"},
		{"full disk", DefaultQuota(), func(w *written) {
			w.lines(10, 3)
			w.disk.room.Store(0)
			w.lines(7, 2)
			w.disk.room.Store(plenty)
			w.retry()
			w.lines(10, 3)
		}, "0-9 | worker:0: 7 lines were not kept: no space left on device, 03:04:15 to 03:04:21 | 17-26"},
		{"full disk, incomplete row", DefaultQuota(), func(w *written) {
			w.lines(10, 3)
			w.disk.room.Store(60)
			w.lines(7, 4)
			w.disk.room.Store(plenty)
			w.retry()
			w.lines(10, 3)
		}, "0-10 | worker:0: 6 lines were not kept: no space left on device, 03:04:16 to 03:04:21 | 17-26"},
		{"full disk, failing retries", DefaultQuota(), func(w *written) {
			w.lines(10, 3)
			w.disk.room.Store(0)
			for range 5 {
				w.lines(2, 1)
				w.retry()
			}
			w.disk.room.Store(plenty)
			w.lines(1, 1)
		}, "0-9 | worker:0: 10 lines were not kept: no space left on device, 03:04:15 to 03:04:24 | 20-20"},
		{"disk full from the beginning", small, func(w *written) {
			w.disk.room.Store(0)
			w.lines(5, 1)
			w.disk.room.Store(plenty)
			w.retry()
			w.lines(30, 1)
		}, "worker:0: 5 lines were not kept: no space left on device, 03:04:05 to 03:04:09 | 5-34"},
		{"disk full at the end", DefaultQuota(), func(w *written) {
			w.lines(5, 1)
			w.disk.room.Store(0)
			w.lines(5, 1)
			w.disk.room.Store(plenty)
		}, "0-4 | worker:0: 5 lines were not kept: no space left on device, 03:04:10 to 03:04:14"},
		{"disk full twice", small, func(w *written) {
			for range 2 {
				w.lines(20, 1)
				w.disk.room.Store(0)
				w.lines(1, 1)
				w.disk.room.Store(plenty)
				w.retry()
			}
			w.lines(20, 1)
		}, "0-19 | worker:0: 1 line was not kept: no space left on device, 03:04:25 | 21-40 | worker:0: " +
			"1 line was not kept: no space left on device, 03:04:46 | 42-61"},
		{"lines lost by the agent", DefaultQuota(), func(w *written) {
			w.lines(5, 5)
			b := &clusterpb.LogBatch{
				Run: 1, Task: "worker:0", Attempt: 2, First: 3, Lost: 3, Lines: []*clusterpb.Line{stored(5)},
			}
			w.Append(b)
			w.Append(b) // sent again
		}, "0-4 | worker:0: 3 lines were not kept: the executor could not hold them until they were sent, 03:04:10 | 5-5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := writeTo(t, dir, tt.quota)
			tt.write(w)
			reads(t, w.Store, Query{}, tt.want)
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			next := NewStore(dir, tt.quota, nil)
			if err := next.Load(1); err != nil {
				t.Fatal(err)
			}
			reads(t, next, Query{}, tt.want)
			if total := next.Lines(1); total != w.Store.Lines(1) {
				t.Errorf("the next driver counts %d lines, want %d", total, w.Store.Lines(1))
			}
			lines, gaps, err := ReadFolder(t.Context(), localFiles(dir), Query{Run: 1})
			if got := outline(lines, gaps); err != nil || got != tt.want {
				t.Errorf("the folder reads\n%s: %v", got, err)
			}
		})
	}
}

// TestQueries runs queries around a gap.
func TestQueries(t *testing.T) {
	t.Parallel()
	const gap = "worker:0: 7 lines were not kept: no space left on device, 03:04:15 to 03:04:21"
	w := writeTo(t, t.TempDir(), Quota{Task: 1 << 30, Cluster: 1 << 30, Segment: 200})
	w.lines(10, 3)
	w.disk.room.Store(0)
	w.lines(7, 2)
	w.disk.room.Store(plenty)
	w.retry()
	w.lines(10, 3)
	for _, tt := range []struct {
		q    Query
		want string
	}{
		{Query{Last: 3}, "24-26"},
		{Query{Last: 10}, gap + " | 17-26"},
		{Query{Last: 12}, "8-9 | " + gap + " | 17-26"},
		{Query{Task: "worker"}, "0-9 | " + gap + " | 17-26"},
		{Query{Task: "chief"}, ""},
		{Query{Since: stamp(8)}, "8-9 | " + gap + " | 17-26"},
		{Query{Since: stamp(20)}, gap[:0] + "20-26"},
		{Query{Grep: regexp.MustCompile(`\b[89]$`)}, "8-9 | " + gap},
		{Query{Until: Position{"worker:0": 9}}, "0-8"},
		{Query{Until: Position{"worker:0": 18}}, "0-9 | " + gap + " | 17-17"},
	} {
		reads(t, w.Store, tt.q, tt.want)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestLoadTorn: an incomplete row at the end of a killed driver's segment is not a line, and
// nothing is appended to it.
func TestLoadTorn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		rows []string // of the last segment
		want string
	}{
		{"no complete row", []string{"2026-01-02T03:0"}, "0-4"},
		{"an empty file", nil, "0-4"},
		{"complete rows before it", []string{
			string(appendLine(nil, stored(3))), "2026-01-02T03:04:05.000000000Z O li",
		}, "0-4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := writeTo(t, dir, DefaultQuota())
			w.lines(3, 1)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			torn := filepath.Join(dir, "run-001", "tasks", "worker-0", "000000000003.log")
			if err := os.WriteFile(torn, []byte(strings.Join(tt.rows, "")), 0o600); err != nil {
				t.Fatal(err)
			}
			next := writeTo(t, dir, DefaultQuota())
			if err := next.Load(1); err != nil {
				t.Fatal(err)
			}
			next.n = int(next.Store.Lines(1))
			b := &clusterpb.LogBatch{Run: 1, Task: "worker:0", Attempt: 2}
			for ; next.n < 5; next.n++ {
				b.Lines = append(b.Lines, stored(next.n))
			}
			next.Append(b)
			reads(t, next.Store, Query{}, tt.want)
			if err := next.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLoadReadsLittle: Load reads only the last segment of each task.
func TestLoadReadsLittle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := writeTo(t, dir, Quota{Task: 1 << 30, Cluster: 1 << 30, Segment: 200})
	w.lines(100, 1)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	next := NewStore(dir, DefaultQuota(), nil)
	var read []string
	next.read = func(path string) ([]byte, error) {
		read = append(read, filepath.Base(path))
		return os.ReadFile(path)
	}
	if err := next.Load(1); err != nil {
		t.Fatal(err)
	}
	if len(read) != 1 || next.Lines(1) != 100 {
		t.Errorf("Load read %v and counts %d lines", read, next.Lines(1))
	}
}

// TestReached: Reached returns the lines of an attempt and the end of its stream.
func TestReached(t *testing.T) {
	t.Parallel()
	s := NewStore(t.TempDir(), DefaultQuota(), nil)
	for _, tt := range []struct {
		batch *clusterpb.LogBatch
		lines uint64
		ended bool
	}{
		{&clusterpb.LogBatch{First: 0, Lines: []*clusterpb.Line{stored(0), stored(1)}}, 2, false},
		{&clusterpb.LogBatch{First: 1, Lines: []*clusterpb.Line{stored(1)}}, 2, false},
		{&clusterpb.LogBatch{First: 2, EndOfStream: true}, 2, true},
		{&clusterpb.LogBatch{First: 0, Lines: []*clusterpb.Line{stored(0)}}, 2, true}, // on a new stream
		{&clusterpb.LogBatch{First: 9, Lost: 7, EndOfStream: true}, 9, true},          // its last lines were lost
	} {
		tt.batch.Run, tt.batch.Task, tt.batch.Attempt = 1, "worker:0", 3
		s.Append(tt.batch)
		if lines, ended := s.Reached(1, "worker:0", 3); lines != tt.lines || ended != tt.ended {
			t.Errorf("%v: %d, %v", tt.batch, lines, ended)
		}
	}
	if lines, ended := s.Reached(1, "worker:0", 2); lines != 0 || ended {
		t.Errorf("another attempt: %d, %v", lines, ended)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestOldReadersSurviveGaps: an older version, which does not know gap rows, reads a row with a
// mark that no line has.
func TestOldReadersSurviveGaps(t *testing.T) {
	t.Parallel()
	row := appendGap(nil, &Gap{Task: "worker:0", Lines: 3, From: stamp(0), To: stamp(2), Why: "no space\nleft"})
	if _, ok := parseStored(row[:len(row)-1], "worker:0"); ok || slices.Contains(row[:len(row)-1], '\n') {
		t.Errorf("%q is parsed as a line", row)
	}
	g, ok := parseGap(row[:len(row)-1], "worker:0")
	if !ok || g.Lines != 3 || !g.From.Equal(stamp(0)) || !g.To.Equal(stamp(2)) || g.Why != "no space left" {
		t.Errorf("%q is parsed as %+v", row, g)
	}
}

func FuzzStored(f *testing.F) {
	f.Add(appendLine(nil, stored(1)))
	f.Add(appendGap(nil, &Gap{Lines: 3, From: stamp(0), To: stamp(2), Why: "no space"}))
	f.Add([]byte("2026-01-02T03:04:05.000000000Z G 18446744073709551616 x\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := NewStore("", DefaultQuota(), nil)
		s.read = func(string) ([]byte, error) { return data, nil }
		of, err := s.readSegment(segment{}, "worker:0", Query{}, new(frames))
		lines, whole := countRows(data)
		n := len(slices.DeleteFunc(of, func(e entry) bool { return e.line == nil }))
		if err != nil || uint64(n) > lines || whole > int64(len(data)) {
			t.Errorf("%q: %d of %d lines: %v", data, n, lines, err)
		}
	})
}

// localFiles gives access to a folder of this host.
type localFiles string

func (d localFiles) List(_ context.Context, name string) ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(filepath.Join(string(d), name))
	if err != nil {
		return nil, err
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func (d localFiles) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(d), name))
}

// TestUnreadableTask: the lines of a task whose folder cannot be listed are a gap; those of the others are read.
func TestUnreadableTask(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, task := range []string{"worker-0", "worker-1"} {
		at := filepath.Join(dir, "run-001", "tasks", task)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, gaps, err := ReadFolder(t.Context(), withoutTask{localFiles(dir)}, Query{Run: 1})
	if err != nil || len(gaps) != 1 || gaps[0].String() != "worker:1: its lines cannot be read: permission denied" {
		t.Errorf("gaps %v, error %v", gaps, err)
	}
}

// withoutTask is a folder in which the folder of worker:1 cannot be listed.
type withoutTask struct{ localFiles }

func (f withoutTask) List(ctx context.Context, name string) ([]fs.FileInfo, error) {
	if strings.HasSuffix(name, "worker-1") {
		return nil, fs.ErrPermission
	}
	return f.localFiles.List(ctx, name)
}

package logstore

import (
	"io"
	"os"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// counted counts the files that are open.
type counted struct {
	*os.File
	open *int
}

func (c counted) Close() error {
	*c.open--
	return c.File.Close()
}

// TestFilesOfEndedStreams: no file stays open behind the end of a stream or of its run, and a later attempt is written.
func TestFilesOfEndedStreams(t *testing.T) {
	t.Parallel()
	dir, open := t.TempDir(), 0
	s := NewStore(dir, DefaultQuota(), nil)
	create := s.open
	s.open = func(path string) (io.WriteCloser, error) {
		w, err := create(path)
		if err == nil {
			open++
		}
		return counted{w.(*os.File), &open}, err
	}
	line := func(run, attempt int32, first uint64, end bool) {
		b := &clusterpb.LogBatch{
			Run: run, Attempt: attempt, Task: "worker:0", First: first, EndOfStream: end,
			Lines: []*clusterpb.Line{{Text: "a line"}},
		}
		s.Append(b)
	}
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"a line", func() { line(1, 0, 0, false) }, 1},
		{"the end of its stream", func() { line(1, 0, 1, true) }, 0},
		{"the next attempt", func() { line(1, 1, 0, false) }, 1},
		{"the end of the run", func() { s.EndRun(1) }, 0},
		{"another run", func() { line(2, 0, 0, true) }, 0},
	} {
		if step.do(); open != step.want {
			t.Errorf("behind %s %d files are open, want %d", step.name, open, step.want)
		}
	}
	if n := s.Lines(1); n != 3 {
		t.Errorf("run 1 has %d lines, want 3", n)
	}
	lines, _, err := s.Read(Query{Run: 1})
	if err != nil || len(lines) != 3 {
		t.Errorf("%d lines are read, %v, want 3", len(lines), err)
	}
}

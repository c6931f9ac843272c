package tasklog

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func someLines(from, n, width int) []*clusterpb.Line {
	lines := make([]*clusterpb.Line, n)
	for i := range lines {
		lines[i] = &clusterpb.Line{Text: fmt.Sprintf("%d %s", from+i, strings.Repeat("x", width))}
	}
	return lines
}

// drain reads every batch there is and checks that its lines are consecutive.
func drain(t *testing.T, l *Log) (lines int, lost uint64, end bool) {
	t.Helper()
	for b := l.batch(); b != nil; b = l.batch() {
		for i, line := range b.GetLines() {
			if want := b.GetFirst() + uint64(i); line.GetSeq() != want ||
				!strings.HasPrefix(line.GetText(), fmt.Sprintf("%d ", want)) {
				t.Fatalf("line %d of a batch from %d: seq %d, %.20q", i, b.GetFirst(), line.GetSeq(), line.GetText())
			}
		}
		lines += len(b.GetLines())
		lost += b.GetLost()
		end = end || b.GetEndOfStream()
	}
	return lines, lost, end
}

func TestSpoolKeepsWhatIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	l := &Log{dir: t.TempDir() + "/spool", wake: func() {}}
	const n = 20_000
	for i := 0; i < n; i += 100 {
		l.Add(someLines(i, 100, 1000)) // 20 MB: most of it on disk
	}
	if entries, err := os.ReadDir(l.dir); err != nil || len(entries) == 0 {
		t.Fatalf("nothing was written to disk: %v", err)
	}
	l.End()
	if lines, lost, end := drain(t, l); lines != n || lost != 0 || !end {
		t.Fatalf("first stream: %d lines, %d lost, end %v", lines, lost, end)
	}
	l.ack(n / 2)
	l.rewind()
	if lines, lost, end := drain(t, l); lines != n/2 || lost != 0 || !end {
		t.Fatalf("second stream: %d lines, %d lost, end %v", lines, lost, end)
	}
	if l.delivered() {
		t.Error("delivered before the last acknowledgement")
	}
	l.ack(n)
	if !l.delivered() {
		t.Error("not delivered after the last acknowledgement")
	}
	if entries, _ := os.ReadDir(l.dir); len(entries) != 0 {
		t.Errorf("%d files are left", len(entries))
	}
}

func TestSpoolSaysWhatItLost(t *testing.T) {
	t.Parallel()
	l := &Log{dir: t.TempDir() + "/spool", wake: func() {}}
	l.Add(someLines(0, 5000, 1000))
	l.mu.Lock()
	if len(l.segments) == 0 {
		t.Fatal("nothing is on disk")
	}
	gone := l.segments[0].count
	l.dropSegment() // as when the disk's share is full
	l.mu.Unlock()
	l.Add(someLines(5000, 10, 0))
	lines, lost, _ := drain(t, l)
	if lost != gone || uint64(lines)+lost != 5010 {
		t.Errorf("%d lines, %d lost, want %d lost of 5010", lines, lost, gone)
	}
}

func TestSpoolPassesOverADamagedFile(t *testing.T) {
	t.Parallel()
	l := &Log{dir: t.TempDir() + "/spool", wake: func() {}}
	l.Add(someLines(0, 5000, 1000))
	if err := os.WriteFile(l.segments[0].path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.Add(someLines(5000, 10, 0))
	if lines, lost, _ := drain(t, l); lines != 10 || lost != 5000 {
		t.Errorf("%d lines, %d lost", lines, lost)
	}
}

func TestSpoolIgnoresAcknowledgementsOfWhatWasNotSent(t *testing.T) {
	t.Parallel()
	l := &Log{dir: t.TempDir(), wake: func() {}}
	l.Add(someLines(0, 3, 0))
	l.ack(100)
	if lines, lost, _ := drain(t, l); lines != 3 || lost != 0 {
		t.Errorf("%d lines, %d lost", lines, lost)
	}
}

// Package tasklog splits a task's output into lines, spools them on the executor's disk until
// the driver has acknowledged them, and sends them.
package tasklog

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Limits of a task's spool and of one batch, in bytes.
const (
	spoolMemory = 4 << 20
	spoolDisk   = 512 << 20
	batchBytes  = 1 << 20
	batchLines  = 2000
	lineCost    = 48 // overhead of a line
)

// Key identifies one attempt of a task.
type Key struct {
	Run, Attempt int32
	Task         string
}

// segment is a file of consecutive lines.
type segment struct {
	path  string
	first uint64
	count uint64
	bytes int
}

func (s segment) end() uint64 { return s.first + s.count }

// Log holds a task's lines until the coordinator has acknowledged them: the newest in memory,
// older ones on disk. If both are full the oldest are dropped, and the next batch has their
// number.
type Log struct {
	key  Key
	dir  string // created with the first segment
	wake func() // called without mu when there is something to send

	mu sync.Mutex
	// guarded by mu
	segments  []segment
	diskBytes int
	loaded    []*clusterpb.Line // lines of the segment read last
	loadedAt  uint64            // its first
	lines     []*clusterpb.Line // the newest
	first     uint64            // number of lines[0]
	bytes     int               // of lines
	sent      uint64            // number of the next line to send
	acked     uint64
	ended     bool // no line follows
	endSent   bool
}

// Add appends lines; after End it drops them. It may wait for the disk, but not for the coordinator.
func (l *Log) Add(lines []*clusterpb.Line) {
	if len(lines) == 0 {
		return
	}
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return
	}
	next := l.first + uint64(len(l.lines))
	for i, line := range lines {
		line.Seq = next + uint64(i)
		l.bytes += len(line.Text) + lineCost
	}
	l.lines = append(l.lines, lines...)
	if l.bytes > spoolMemory {
		l.spill()
	}
	l.mu.Unlock()
	l.wake()
}

// Count returns how many lines the task has written so far.
func (l *Log) Count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first + uint64(len(l.lines))
}

// End marks the log as complete.
func (l *Log) End() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.wake()
}

// spill moves the lines in memory to disk, or drops them if that fails. Caller holds mu.
func (l *Log) spill() {
	s := segment{first: l.first, count: uint64(len(l.lines))}
	batch := &clusterpb.LogBatch{Lines: l.lines}
	l.first += s.count
	l.lines, l.bytes = nil, 0
	data, err := proto.Marshal(batch)
	if err != nil || os.MkdirAll(l.dir, 0o700) != nil {
		return
	}
	s.path = filepath.Join(l.dir, fmt.Sprintf("%020d", s.first))
	s.bytes = len(data)
	if err := os.WriteFile(s.path, data, 0o600); err != nil {
		os.Remove(s.path)
		return
	}
	l.segments = append(l.segments, s)
	l.diskBytes += s.bytes
	for l.diskBytes > spoolDisk {
		l.dropSegment()
	}
}

func (l *Log) dropSegment() {
	os.Remove(l.segments[0].path)
	l.diskBytes -= l.segments[0].bytes
	l.segments = l.segments[1:]
}

// batch returns what to send next, or nil when there is nothing.
func (l *Log) batch() *clusterpb.LogBatch {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &clusterpb.LogBatch{Run: l.key.Run, Attempt: l.key.Attempt, Task: l.key.Task}
	asked := l.sent
	available := l.at(asked)
	b.First = l.sent
	b.Lost = l.sent - asked
	size := 0
	for _, line := range available {
		cost := len(line.Text) + lineCost
		if len(b.Lines) == batchLines || (size > 0 && size+cost > batchBytes) {
			break
		}
		b.Lines = append(b.Lines, line)
		size += cost
	}
	l.sent += uint64(len(b.Lines))
	if l.ended && !l.endSent && l.sent == l.first+uint64(len(l.lines)) {
		b.EndOfStream, l.endSent = true, true
	}
	if len(b.Lines) == 0 && !b.EndOfStream {
		return nil
	}
	return b
}

// at returns consecutive lines from number n on, and sets sent to the first of them, which is
// later if lines were dropped. Caller holds mu.
func (l *Log) at(n uint64) []*clusterpb.Line {
	for {
		i := slices.IndexFunc(l.segments, func(s segment) bool { return n < s.end() })
		if i < 0 {
			break
		}
		s := l.segments[i]
		n = max(n, s.first)
		if err := l.load(s); err != nil {
			n = s.end() // its lines are lost
			l.sent = n
			continue
		}
		l.sent = n
		return l.loaded[n-s.first:]
	}
	l.sent = max(n, l.first)
	return l.lines[l.sent-l.first:]
}

func (l *Log) load(s segment) error {
	if l.loaded != nil && l.loadedAt == s.first {
		return nil
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	var batch clusterpb.LogBatch
	if err := proto.Unmarshal(data, &batch); err != nil {
		return err
	}
	if uint64(len(batch.Lines)) != s.count {
		return io.ErrUnexpectedEOF
	}
	l.loaded, l.loadedAt = batch.Lines, s.first
	return nil
}

// ack drops the lines before number next.
func (l *Log) ack(next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next <= l.acked || next > l.sent {
		return
	}
	l.acked = next
	for len(l.segments) > 0 && l.segments[0].end() <= next {
		if l.loadedAt == l.segments[0].first {
			l.loaded = nil
		}
		l.dropSegment()
	}
	if next > l.first {
		gone := min(next-l.first, uint64(len(l.lines)))
		for _, line := range l.lines[:gone] {
			l.bytes -= len(line.Text) + lineCost
		}
		clear(l.lines[:gone])
		l.lines = l.lines[gone:]
		l.first += gone
	}
}

// rewind has batch return unacknowledged lines again, for a new stream.
func (l *Log) rewind() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.endSent = l.acked, false
}

// delivered returns whether all lines and the end were acknowledged.
func (l *Log) delivered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended && l.endSent && l.acked == l.first+uint64(len(l.lines))
}

// remove removes the log's files.
func (l *Log) remove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments, l.diskBytes = nil, 0
	os.RemoveAll(l.dir)
}

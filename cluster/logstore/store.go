// Package logstore keeps the lines that tasks wrote, and reads them back.
//
//	store.go       the lines that arrive, and who is given them
//	storewrite.go  segments on disk; a disk that is full
//	quota.go       when a segment is full, and which goes for a new one
//	storeload.go   segments that an earlier driver wrote
//	segment.go     the format of a segment
//	query.go       lines by task, time and pattern
//	readfolder.go  the same from a folder that no driver serves
//	merge.go, ends.go, shorten.go  what a cell shows of many, alike or long lines
package logstore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/rundir"
)

// Store keeps every line that tasks wrote, up to a quota: a folder a task below the
// run's, in it segments that a person can read too (segment.go). Past the quota the
// oldest segment goes. Lines that cannot be written are given to subscribers all the
// same, and counted; a row in the segments says how many are missing there. Its methods
// may be called from any goroutine. Those that only look never wait for the disk.
type Store struct {
	dir   string // the cluster's; run folders are below
	quota Quota
	read  func(path string) ([]byte, error)
	open  func(path string) (io.WriteCloser, error)
	tell  func(text string) // may be nil

	mu          sync.Mutex
	streams     map[streamKey]*stream
	bytes       int64
	subscribers map[int32]map[*subscriber]struct{} // by run
	outage      outage
	closed      bool
}

// subscriber is called with lines under the store's lock.
type subscriber struct{ lines func([]*clusterpb.Line) }

type streamKey struct {
	run  int32
	task string
}

// stream is what one task of one run wrote.
type stream struct {
	task string
	dir  string

	// writing is held by who writes to the stream's files; before the store's mu.
	writing sync.Mutex
	// guarded by writing
	file    io.WriteCloser // the last segment's; nil: the next line begins a new one
	retryAt time.Time      // while lines are missing: not before this is writing tried again
	retry   *time.Timer    // tries again although no line comes; nil while none is missing
	gave    string         // why it cannot be written

	// guarded by the store's mu
	next     map[int32]uint64 // by attempt: the sequence number expected
	ended    map[int32]bool   // by attempt: everything it wrote has arrived
	total    uint64           // lines that arrived, over all attempts
	frames   uint64           // those of them that are frames of progress bars and arrived at this store
	lost     uint64           // the oldest lines, which the quota took
	segments []segment
	missing  *Gap // lines that could not be written, not yet recorded in a segment
}

// NewStore keeps lines below dir. tell, which may be nil, is given a line for people when
// lines cannot be kept, and when they are kept again.
func NewStore(dir string, quota Quota, tell func(text string)) *Store {
	return &Store{
		dir: dir, quota: quota, tell: tell, read: os.ReadFile, open: openSegment, streams: map[streamKey]*stream{},
		subscribers: map[int32]map[*subscriber]struct{}{},
	}
}

// stream is that of a run's task, made where there is none. Caller holds mu.
func (s *Store) stream(run int32, task string) *stream {
	k := streamKey{run, task}
	st := s.streams[k]
	if st == nil {
		st = &stream{
			task: task, dir: filepath.Join(rundir.Dir(s.dir, run), rundir.Lines, strings.ReplaceAll(task, ":", "-")),
			next: map[int32]uint64{}, ended: map[int32]bool{},
		}
		s.streams[k] = st
	}
	return st
}

// Append keeps the lines of a batch that it does not have already and gives those to the
// run's subscribers, also where they cannot be written. It returns the sequence number
// that it expects next. A line has its number among all lines that its task wrote in the run.
func (s *Store) Append(b *clusterpb.LogBatch) (next uint64) {
	s.mu.Lock()
	st := s.stream(b.GetRun(), b.GetTask())
	s.mu.Unlock()
	st.writing.Lock()
	defer st.writing.Unlock()
	s.mu.Lock()
	attempt, lines := b.GetAttempt(), b.GetLines()
	have, number := st.next[attempt], st.total
	s.mu.Unlock()
	var lost uint64 // on the way, by the agent's spool
	if b.GetFirst() < have {
		lines = lines[min(uint64(len(lines)), have-b.GetFirst()):]
	} else {
		lost = min(b.GetLost(), b.GetFirst()-have)
	}
	for i, l := range lines {
		l.Task, l.Seq = b.GetTask(), number+uint64(i)
	}
	s.keep(st, lines, lost)
	s.mu.Lock()
	defer s.mu.Unlock()
	st.total += uint64(len(lines))
	for _, l := range lines {
		if l.GetCarriage() {
			st.frames++
		}
	}
	st.next[attempt] = max(have, b.GetFirst()+uint64(len(b.GetLines())))
	st.ended[attempt] = st.ended[attempt] || b.GetEndOfStream() // a stream that is sent again has ended all the same
	for sub := range s.subscribers[b.GetRun()] {
		sub.lines(lines)
	}
	return st.next[attempt]
}

// Subscribe has f called with the lines of a run that arrive from now on, in order and
// each once; what arrived before is read up to since. f must not wait for anything.
func (s *Store) Subscribe(run int32, f func([]*clusterpb.Line)) (since Position, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers[run] == nil {
		s.subscribers[run] = map[*subscriber]struct{}{}
	}
	sub := &subscriber{f}
	s.subscribers[run][sub] = struct{}{}
	return s.position(run), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers[run], sub)
		if len(s.subscribers[run]) == 0 {
			delete(s.subscribers, run)
		}
	}
}

// Lines is how many lines a run's tasks have written.
func (s *Store) Lines(run int32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for k, st := range s.streams {
		if k.run == run {
			n += int64(st.total)
		}
	}
	return n
}

// Written is how many lines a run's tasks have written, without the frames of progress bars
// that arrived since the store was made.
func (s *Store) Written(run int32) int64 {
	n := s.Lines(run)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, st := range s.streams {
		if k.run == run {
			n -= int64(st.frames)
		}
	}
	return n
}

// Bytes is what the store holds on disk.
func (s *Store) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Reached is how many lines of a task's attempt have arrived, and whether none will follow.
// Subscribers have been given them.
func (s *Store) Reached(run int32, task string, attempt int32) (lines uint64, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[streamKey{run, task}]
	if st == nil {
		return 0, false
	}
	return st.next[attempt], st.ended[attempt]
}

// Close closes every segment. Which lines are missing is recorded if that is possible now.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	var all []*stream
	for _, st := range s.streams {
		all = append(all, st)
	}
	s.mu.Unlock()
	var errs []error
	for _, st := range all {
		errs = append(errs, s.closeStream(st))
	}
	return errors.Join(errs...)
}

func (s *Store) closeStream(st *stream) error {
	st.writing.Lock()
	defer st.writing.Unlock()
	var err error
	if st.retry != nil {
		st.retry.Stop()
		if err = s.write(st, nil, 0); err != nil {
			err = fmt.Errorf("record which lines of %s are missing: %w", st.task, err)
		}
	}
	return cmp.Or(err, st.close())
}

// close closes the last segment: the next line begins a new one. Caller holds writing.
func (st *stream) close() error {
	if st.file == nil {
		return nil
	}
	err := st.file.Close()
	st.file = nil
	return err
}

// Package logstore stores the lines that tasks write, and reads them.
//
//	store.go       receives lines and passes them to subscribers
//	storewrite.go  writes segments; handles a full disk
//	quota.go       decides when a segment is full and which segments are dropped
//	storeload.go   loads the segments of an earlier driver
//	segment.go     the format of a segment
//	query.go       selects lines by task, time and pattern
//	readfolder.go  reads the lines of a folder without a driver
//	merge.go, ends.go, shorten.go  reduce many, identical or long lines for a cell
package logstore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// Store stores the lines that tasks write, up to a quota. Each task of a run has a folder below
// the run's, with segments in a readable text format (segment.go). When the quota is exceeded,
// the oldest segments are dropped. Lines that cannot be written are still passed to
// subscribers; a row in the segments records how many are missing there. All methods are safe
// for concurrent use. Methods that only read counts never wait for the disk.
type Store struct {
	dir    string // the cluster's folder; the run folders are below it
	quota  Quota
	read   func(path string) ([]byte, error)
	open   func(path string) (io.WriteCloser, error)
	notify func(text string) // may be nil

	mu          sync.Mutex
	streams     map[streamKey]*stream
	bytes       int64
	subscribers map[int32]map[*subscriber]struct{} // by run
	outage      outage
	closed      bool
}

// subscriber.lines is called with new lines while the store's mu is held.
type subscriber struct{ lines func([]*clusterpb.Line) }

type streamKey struct {
	run  int32
	task string
}

// stream is the output of one task in one run.
type stream struct {
	task string
	dir  string

	// writing is held while the stream's files are written; it is locked before the store's mu.
	writing sync.Mutex
	// guarded by writing
	file    io.WriteCloser // the last segment; nil: the next line starts a new segment
	retryAt time.Time      // while lines are missing: earliest time of the next attempt to write
	retry   *time.Timer    // writes the gap if no line arrives; nil while no line is missing
	cause   string         // why it cannot be written
	over    bool           // no line is expected before the next attempt's

	// guarded by the store's mu
	next     map[int32]uint64 // by attempt: the next sequence number expected
	ended    map[int32]bool   // by attempt: the agent has reported the end of the stream
	total    uint64           // lines that have arrived, over all attempts
	frames   uint64           // those of them that are frames of progress bars and arrived at this store
	lost     uint64           // lines dropped by the quota
	segments []segment
	missing  *Gap // lines that could not be written, not yet recorded in a segment
}

// NewStore returns a store of the folder dir. notify, which may be nil, is called with a
// message for users when lines cannot be written, and when they can again.
func NewStore(dir string, quota Quota, notify func(text string)) *Store {
	return &Store{
		dir: dir, quota: quota, notify: notify, read: os.ReadFile, open: openSegment, streams: map[streamKey]*stream{},
		subscribers: map[int32]map[*subscriber]struct{}{},
	}
}

// stream returns the stream of a run's task and creates it if necessary. The caller holds mu.
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

// ofRun returns the streams of a run. The caller holds mu.
func (s *Store) ofRun(run int32) []*stream {
	var all []*stream
	for k, st := range s.streams {
		if k.run == run {
			all = append(all, st)
		}
	}
	return all
}

// Append stores the lines of a batch that have not arrived before and passes them to the run's
// subscribers, even if they cannot be written. It returns the next sequence number it expects.
// It sets Seq of each line to the line's number in the task's output of the run.
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
	var lost uint64 // lost in the agent's spool
	if b.GetFirst() < have {
		lines = lines[min(uint64(len(lines)), have-b.GetFirst()):]
	} else {
		lost = min(b.GetLost(), b.GetFirst()-have)
	}
	for i, l := range lines {
		l.Task, l.Seq = b.GetTask(), number+uint64(i)
	}
	st.over = b.GetEndOfStream()
	s.keep(st, lines, lost)
	s.closeOver(st)
	s.mu.Lock()
	defer s.mu.Unlock()
	st.total += uint64(len(lines))
	for _, l := range lines {
		if l.GetCarriage() {
			st.frames++
		}
	}
	st.next[attempt] = max(have, b.GetFirst()+uint64(len(b.GetLines())))
	st.ended[attempt] = st.ended[attempt] || b.GetEndOfStream() // a batch that is sent again may lack the mark
	for sub := range s.subscribers[b.GetRun()] {
		sub.lines(lines)
	}
	return st.next[attempt]
}

// Subscribe calls f with the lines of a run that arrive from now on, in order and each once.
// Lines up to the position since arrived before and can be read with Query.Until. f must not
// block. leave ends the subscription.
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

// Lines returns how many lines a run's tasks have written.
func (s *Store) Lines(run int32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for _, st := range s.ofRun(run) {
		n += int64(st.total)
	}
	return n
}

// Written returns the number of lines that a run's tasks have written, without the frames of progress bars
// that arrived since the store was created.
func (s *Store) Written(run int32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for _, st := range s.ofRun(run) {
		n += int64(st.total - st.frames)
	}
	return n
}

// Reached returns how many lines of a task's attempt have arrived and been passed to
// subscribers, and whether the stream has ended.
func (s *Store) Reached(run int32, task string, attempt int32) (lines uint64, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[streamKey{run, task}]
	if st == nil {
		return 0, false
	}
	return st.next[attempt], st.ended[attempt]
}

// EndRun closes the segments of a run whose tasks write no more: those of a lost executor have not ended by themselves.
func (s *Store) EndRun(run int32) {
	s.mu.Lock()
	all := s.ofRun(run)
	s.mu.Unlock()
	for _, st := range all {
		st.writing.Lock()
		st.over = true
		s.closeOver(st)
		st.writing.Unlock()
	}
}

// closeOver closes the segment of a stream that is over, once missing lines are recorded; lines of another attempt
// start a new one. The caller holds writing.
func (s *Store) closeOver(st *stream) {
	if !st.over || st.retry != nil {
		return
	}
	if err := st.close(); err != nil && s.notify != nil {
		s.notify(fmt.Sprintf("the last lines of %s may be lost: their file could not be closed: %v", st.task, err))
	}
}

// Close closes every segment. It records missing lines if the disk allows it.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.streams))
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
			err = fmt.Errorf("the last lines of %s are lost, because they could not be written: %w", st.task, err)
		}
	}
	return cmp.Or(err, st.close())
}

// close closes the last segment; the next line starts a new one. The caller holds writing.
func (st *stream) close() error {
	if st.file == nil {
		return nil
	}
	err := st.file.Close()
	st.file = nil
	return err
}

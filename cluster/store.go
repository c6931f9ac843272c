package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Store keeps every line that tasks wrote, up to a quota: a folder a task below the
// run's, in it segments that a person can read too. A line of a segment is
//
//	2026-11-21T04:05:06.789012345Z E text
//
// where E is standard error, O standard output, and a small letter a frame that
// ended in a carriage return. Past the quota the oldest segment goes and the gap is
// said. Its methods may be called from any goroutine.
type Store struct {
	dir     string // the cluster's; run folders are below
	quota   Quota
	read    func(path string) ([]byte, error)
	mu      sync.Mutex
	streams map[streamKey]*stream
	bytes   int64
	// guarded by mu: called with the new lines of a run, in order, and must not wait
	subscribers map[int32]map[*subscriber]struct{}
}

type subscriber struct{ lines func([]*clusterpb.Line) }

// Quota bounds what a store keeps, in bytes.
type Quota struct {
	Task    int64
	Cluster int64
	Segment int64
}

// DefaultQuota is 1 GB a task, 5 GB a cluster.
func DefaultQuota() Quota { return Quota{Task: 1 << 30, Cluster: 5 << 30, Segment: 16 << 20} }

type streamKey struct {
	run  int32
	task string
}

// stream is what one task of one run wrote.
type stream struct {
	dir      string
	next     map[int32]uint64 // by attempt: the sequence number expected
	ended    map[int32]bool   // by attempt: everything it wrote has arrived
	total    uint64           // lines kept, over all attempts
	lost     uint64           // lines that the quota or an agent's spool took
	segments []segment
	file     *os.File
	w        *bufio.Writer
}

type segment struct {
	path  string
	first uint64 // the number of its first line
	bytes int64
	lines uint64
	last  time.Time
}

// NewStore keeps lines below dir.
func NewStore(dir string, quota Quota) *Store {
	return &Store{dir: dir, quota: quota, read: os.ReadFile, streams: map[streamKey]*stream{}, subscribers: map[int32]map[*subscriber]struct{}{}}
}

// RunDir is a run's folder below the cluster's.
func RunDir(dir string, run int32) string { return join(dir, runName(run)) }

func runName(run int32) string { return fmt.Sprintf("run-%03d", run) }

func (s *Store) stream(run int32, task string) *stream {
	k := streamKey{run, task}
	st := s.streams[k]
	if st == nil {
		st = &stream{next: map[int32]uint64{}, ended: map[int32]bool{}, dir: filepath.Join(RunDir(s.dir, run), "tasks", strings.ReplaceAll(task, ":", "-"))}
		s.streams[k] = st
	}
	return st
}

// Append keeps the lines of a batch that it has not kept already and gives those to the
// run's subscribers. It returns the sequence number that it expects next. A line that is
// kept bears its number among all that its task wrote in the run.
func (s *Store) Append(b *clusterpb.LogBatch) (next uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(b.GetRun(), b.GetTask())
	attempt := b.GetAttempt()
	lines := b.GetLines()
	have := st.next[attempt]
	if b.GetFirst() < have {
		lines = lines[min(uint64(len(lines)), have-b.GetFirst()):]
	} else {
		st.lost += min(b.GetLost(), b.GetFirst()-have)
	}
	kept := 0
	for _, l := range lines {
		l.Task, l.Seq = b.GetTask(), st.total
		if err = s.write(st, l); err != nil {
			break
		}
		kept++
		st.total++
	}
	if st.w != nil && err == nil {
		if ferr := st.w.Flush(); ferr != nil {
			err = fmt.Errorf("keep lines of %s: %w", b.GetTask(), ferr)
		}
	}
	st.next[attempt] = max(have, b.GetFirst()+uint64(len(b.GetLines())-len(lines)+kept))
	st.ended[attempt] = st.ended[attempt] || b.GetEndOfStream() // a stream that is sent again has ended all the same
	for sub := range s.subscribers[b.GetRun()] {
		sub.lines(lines[:kept])
	}
	return st.next[attempt], err
}

// Subscribe has f called with the lines of a run that are kept from now on, in order and
// each once; what was kept before is read up to since. f must not wait for anything.
func (s *Store) Subscribe(run int32, f func([]*clusterpb.Line)) (since position, leave func()) {
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

func (s *Store) write(st *stream, l *clusterpb.Line) error {
	if st.file == nil || st.segments[len(st.segments)-1].bytes >= s.quota.Segment {
		if err := s.roll(st); err != nil {
			return err
		}
	}
	at := time.Unix(0, l.GetUnixNano()).UTC()
	mark := byte('O')
	if l.GetStream() == clusterpb.Line_STDERR {
		mark = 'E'
	}
	if l.GetCarriage() {
		mark |= 0x20
	}
	var buf [40]byte
	head := at.AppendFormat(buf[:0], stampLayout)
	head = append(head, ' ', mark, ' ')
	n, err := st.w.Write(head)
	if err == nil {
		var m int
		m, err = st.w.WriteString(strings.ReplaceAll(l.GetText(), "\n", " "))
		n += m + 1
	}
	if err == nil {
		err = st.w.WriteByte('\n')
	}
	if err != nil {
		return fmt.Errorf("keep a line of %s: %w", l.GetTask(), err)
	}
	seg := &st.segments[len(st.segments)-1]
	seg.bytes += int64(n)
	seg.lines++
	seg.last = at
	s.bytes += int64(n)
	return nil
}

const stampLayout = "2006-01-02T15:04:05.000000000Z"

// roll begins a new segment and makes room for it.
func (s *Store) roll(st *stream) error {
	if err := st.close(); err != nil {
		return err
	}
	var of int64
	for _, g := range st.segments {
		of += g.bytes
	}
	for of+s.quota.Segment > s.quota.Task && len(st.segments) > 0 {
		of -= st.segments[0].bytes
		s.dropOldest(st)
	}
	for s.bytes+s.quota.Segment > s.quota.Cluster {
		oldest := st
		for _, o := range s.streams {
			if len(o.segments) > 1 && (len(oldest.segments) == 0 || o.segments[0].last.Before(oldest.segments[0].last)) {
				oldest = o
			}
		}
		if len(oldest.segments) == 0 {
			break
		}
		s.dropOldest(oldest)
	}
	if err := os.MkdirAll(st.dir, 0o755); err != nil {
		return fmt.Errorf("make a folder for lines: %w", err)
	}
	path := filepath.Join(st.dir, fmt.Sprintf("%012d.log", st.total))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("begin a segment of lines: %w", err)
	}
	st.file, st.w = f, bufio.NewWriterSize(f, 64<<10)
	st.segments = append(st.segments, segment{path: path, first: st.total})
	return nil
}

func (s *Store) dropOldest(st *stream) {
	g := st.segments[0]
	st.segments = st.segments[1:]
	st.lost += g.lines
	s.bytes -= g.bytes
	_ = os.Remove(g.path) // what cannot be removed is found by the next look at the quota's folder
}

func (st *stream) close() error {
	if st.file == nil {
		return nil
	}
	err := st.w.Flush()
	if cerr := st.file.Close(); err == nil {
		err = cerr
	}
	st.file, st.w = nil, nil
	return err
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

// Load takes up what an earlier driver's store kept of a run.
func (s *Store) Load(run int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	root := filepath.Join(RunDir(s.dir, run), "tasks")
	tasks, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load lines of run %d: %w", run, err)
	}
	for _, t := range tasks {
		i := strings.LastIndexByte(t.Name(), '-')
		if i < 0 {
			continue
		}
		st := s.stream(run, t.Name()[:i]+":"+t.Name()[i+1:])
		files, err := filepath.Glob(filepath.Join(st.dir, "*.log"))
		if err != nil || len(st.segments) > 0 {
			continue
		}
		slices.Sort(files)
		for _, path := range files {
			b, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("load lines of run %d: %w", run, err)
			}
			var first uint64
			if _, err := fmt.Sscanf(filepath.Base(path), "%d.log", &first); err != nil {
				continue
			}
			n := uint64(strings.Count(string(b), "\n"))
			st.segments = append(st.segments, segment{path: path, first: first, bytes: int64(len(b)), lines: n})
			st.total = first + n
			s.bytes += int64(len(b))
		}
	}
	return nil
}

// Close flushes and closes every segment.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, st := range s.streams {
		errs = append(errs, st.close())
	}
	return errors.Join(errs...)
}

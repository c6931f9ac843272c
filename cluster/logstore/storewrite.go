package logstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// How often writing is tried again while it fails: as lines come, and when none comes.
const (
	retryPause = 50 * time.Millisecond
	retryIdle  = time.Second
)

// outage is a while in which streams could not be written.
type outage struct {
	streams int    // that cannot be written now
	lines   uint64 // that were not kept
	said    bool   // its beginning was reported
	ended   time.Time
}

// outagePause is the least time between the end of an outage and the next beginning that is
// reported, so a disk that fails again and again does not cause a flood of messages.
const outagePause = 10 * time.Second

// keep writes lines to the stream's segments, or counts them as missing. lost lines went
// missing before them, on their way here. Caller holds writing, not mu.
func (s *Store) keep(st *stream, lines []*clusterpb.Line, lost uint64) {
	if len(lines) == 0 && lost == 0 {
		return
	}
	if st.retry != nil && time.Now().Before(st.retryAt) {
		s.miss(st, lines, lost)
		return
	}
	_ = s.write(st, lines, lost) // what it could not write is counted
}

// write writes what is missing so far, if anything is, and lines. Lines that it cannot write
// it counts. Caller holds writing, not mu.
func (s *Store) write(st *stream, lines []*clusterpb.Line, lost uint64) error {
	for once := true; once || len(lines) > 0; once = false {
		fresh := st.file == nil || s.full(st)
		if fresh {
			if err := s.roll(st, lines); err != nil {
				s.fail(st, lines, lost, err)
				return err
			}
		}
		rows := s.rows(st, lines, lost)
		n, err := st.file.Write(rows.text)
		kept, recorded := rows.whole(n)
		s.grow(st, n, lines[:kept])
		if recorded {
			s.recovered(st)
			lost = 0
		}
		lines = lines[kept:]
		if err != nil {
			if fresh && kept == 0 && !recorded {
				s.dropEmpty(st, n)
			}
			s.fail(st, lines, lost, err)
			return err
		}
	}
	return nil
}

// rows is text for one write: a gap's row, perhaps, and the rows of lines.
type rows struct {
	text []byte
	gap  int   // where the gap's row ends
	ends []int // where each line's row ends
}

// rows are those of a write: the missing lines and as many others as the segment takes.
// Caller holds writing.
func (s *Store) rows(st *stream, lines []*clusterpb.Line, lost uint64) rows {
	s.mu.Lock()
	missing, room := st.missing, s.quota.Segment
	if n := len(st.segments); n > 0 {
		room -= st.segments[n-1].bytes
	}
	s.mu.Unlock()
	var r rows
	if lost > 0 {
		missing = missing.with(st.task, lines, lost, lostOnTheWay)
	}
	if missing != nil {
		r.text = appendGap(r.text, missing)
		r.gap = len(r.text)
	}
	for _, l := range lines {
		if int64(len(r.text)) >= room && len(r.ends) > 0 {
			break
		}
		r.text = appendLine(r.text, l)
		r.ends = append(r.ends, len(r.text))
	}
	return r
}

// whole is what of the rows is whole where n bytes were written.
func (r rows) whole(n int) (lines int, recorded bool) {
	for lines < len(r.ends) && r.ends[lines] <= n {
		lines++
	}
	return lines, n >= r.gap
}

// grow notes what was written to the last segment.
func (s *Store) grow(st *stream, n int, lines []*clusterpb.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &st.segments[len(st.segments)-1]
	g.bytes += int64(n)
	g.lines += uint64(len(lines))
	if len(lines) > 0 {
		g.last = time.Unix(0, lines[len(lines)-1].GetUnixNano())
	}
	s.bytes += int64(n)
}

// lostOnTheWay is why lines never came here.
const lostOnTheWay = "the executor could not hold them until they were sent"

// with returns the gap with more lines: lost of them, or, if lost is 0, those in lines. If
// lines were lost before lines, the gap ends where lines begin.
func (g *Gap) with(task string, lines []*clusterpb.Line, lost uint64, why string) *Gap {
	from, to := time.Now(), time.Now()
	if len(lines) > 0 {
		from, to = time.Unix(0, lines[0].GetUnixNano()), time.Unix(0, lines[len(lines)-1].GetUnixNano())
		if lost > 0 {
			to = from
		}
	}
	grown := Gap{Task: task, Lines: lost, From: from, To: to, Why: why}
	if lost == 0 {
		grown.Lines = uint64(len(lines))
	}
	if g != nil {
		grown.Lines += g.Lines
		grown.From, grown.Why = g.From, g.Why
	}
	return &grown
}

// miss counts lines as missing. Caller holds writing.
func (s *Store) miss(st *stream, lines []*clusterpb.Line, lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost > 0 {
		st.missing = st.missing.with(st.task, lines, lost, lostOnTheWay)
	}
	if len(lines) > 0 {
		st.missing = st.missing.with(st.task, lines, 0, st.gave)
		s.outage.lines += uint64(len(lines))
	}
}

// fail gives the last segment up: the next row begins another, so that nothing is joined to
// half a line. Caller holds writing, not mu.
func (s *Store) fail(st *stream, lines []*clusterpb.Line, lost uint64, err error) {
	_ = st.close() // the error is reported already
	st.gave = reason(err)
	st.retryAt = time.Now().Add(retryPause)
	s.miss(st, lines, lost)
	s.mu.Lock()
	closed := s.closed
	began := st.retry == nil && st.missing != nil && !closed
	if began {
		if s.outage.streams == 0 {
			s.outage = outage{ended: s.outage.ended, lines: uint64(len(lines))}
		}
		s.outage.streams++
	}
	say := began && s.outage.streams == 1 && time.Since(s.outage.ended) > outagePause
	s.outage.said = s.outage.said || say
	s.mu.Unlock()
	if began {
		st.retry = time.AfterFunc(retryIdle, func() { s.again(st) })
	}
	if say && s.tell != nil {
		s.tell(fmt.Sprintf("lines cannot be kept in %s: %s; cells show them all the same, and logs says how many are missing", filepath.Dir(filepath.Dir(st.dir)), st.gave))
	}
}

// again tries to record what is missing although no line comes.
func (s *Store) again(st *stream) {
	st.writing.Lock()
	defer st.writing.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if st.retry == nil || closed {
		return
	}
	if s.write(st, nil, 0) != nil {
		st.retry.Reset(retryIdle)
	}
}

// recovered notes that what was missing is recorded. Caller holds writing, not mu.
func (s *Store) recovered(st *stream) {
	s.mu.Lock()
	st.missing = nil
	ended := false
	o := s.outage
	if st.retry != nil {
		st.retry.Stop()
		st.retry = nil
		s.outage.streams--
		if ended = s.outage.streams == 0; ended {
			s.outage = outage{ended: time.Now()}
		}
	}
	s.mu.Unlock()
	if ended && o.said && s.tell != nil {
		s.tell(fmt.Sprintf("lines are kept again; %d were not: logs shows where", o.lines))
	}
}

// roll begins a new segment and makes room for it. Caller holds writing, not mu.
func (s *Store) roll(st *stream, lines []*clusterpb.Line) error {
	if err := st.close(); err != nil {
		return fmt.Errorf("close a segment of lines: %w", err)
	}
	s.mu.Lock()
	gone := s.makeRoom(st)
	g := segment{first: st.total}
	if len(lines) > 0 {
		g.first = lines[0].GetSeq()
	}
	g.path = filepath.Join(st.dir, fmt.Sprintf("%012d.log", g.first))
	if n := len(st.segments); n > 0 && st.segments[n-1].path == g.path { // an earlier driver's, without a line
		g = st.segments[n-1]
		st.segments = st.segments[:n-1]
	}
	s.mu.Unlock()
	for _, path := range gone {
		_ = os.Remove(path) // what cannot be removed is no longer counted, nor read
	}
	if err := os.MkdirAll(st.dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for lines: %w", err)
	}
	if err := os.Truncate(g.path, g.bytes); err != nil && !errors.Is(err, os.ErrNotExist) { // half a row may be behind it
		return fmt.Errorf("take up a segment of lines: %w", err)
	}
	f, err := s.open(g.path)
	if err != nil {
		return fmt.Errorf("begin a segment of lines: %w", err)
	}
	st.file = f
	s.mu.Lock()
	defer s.mu.Unlock()
	st.segments = append(st.segments, g)
	return nil
}

// dropEmpty removes the last segment, unless it holds more than the n bytes of half a row
// that were written just now. Caller holds writing, not mu.
func (s *Store) dropEmpty(st *stream, n int) {
	s.mu.Lock()
	g := st.segments[len(st.segments)-1]
	empty := g.bytes == int64(n)
	if empty {
		st.segments = st.segments[:len(st.segments)-1]
		s.bytes -= g.bytes
	}
	s.mu.Unlock()
	if empty {
		_ = st.close()
		_ = os.Remove(g.path) // what is left of it holds no line
	}
}

// dropOldest forgets a stream's first segment. Caller holds mu.
func (s *Store) dropOldest(st *stream) (path string) {
	g := st.segments[0]
	st.segments = st.segments[1:]
	st.lost = g.first + g.lines
	if len(st.segments) > 0 {
		st.lost = st.segments[0].first
	}
	s.bytes -= g.bytes
	return g.path
}

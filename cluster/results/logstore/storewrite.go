package logstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Pauses between attempts to write a stream whose segment has failed: retryPause while lines
// arrive, retryIdle while none arrives.
const (
	retryPause = 50 * time.Millisecond
	retryIdle  = time.Second
)

// outage is a period in which streams could not be written.
type outage struct {
	streams  int    // that cannot be written now
	lines    uint64 // that were not stored
	reported bool   // its beginning was reported
	ended    time.Time
}

// outagePause is the least time between the end of an outage and the next one that is reported,
// so a disk that fails repeatedly does not flood the user with messages.
const outagePause = 10 * time.Second

// keep writes lines to the stream's segments, or counts them as missing. lost is the number of
// lines before them that never arrived. The caller holds writing, not mu.
func (s *Store) keep(st *stream, lines []*clusterpb.Line, lost uint64) {
	if len(lines) == 0 && lost == 0 {
		return
	}
	if st.retry != nil && time.Now().Before(st.retryAt) {
		s.countMissing(st, lines, lost)
		return
	}
	_ = s.write(st, lines, lost) // write counts the lines that it could not write
}

// write writes the record of missing lines, if there are any, and then lines. It counts lines
// that it cannot write as missing. The caller holds writing, not mu.
func (s *Store) write(st *stream, lines []*clusterpb.Line, lost uint64) error {
	for once := true; once || len(lines) > 0; once = false {
		fresh := st.file == nil || s.full(st)
		if fresh {
			if err := s.roll(st, lines); err != nil {
				s.failSegment(st, lines, lost, err)
				return err
			}
		}
		rows := s.rows(st, lines, lost)
		n, err := st.file.Write(rows.text)
		kept, recorded := rows.complete(n)
		s.wrote(st, n, lines[:kept])
		if recorded {
			s.recovered(st)
			lost = 0
		}
		lines = lines[kept:]
		if err != nil {
			if fresh && kept == 0 && !recorded {
				s.dropEmpty(st, n)
			}
			s.failSegment(st, lines, lost, err)
			return err
		}
	}
	return nil
}

// rows is the text of one write: an optional gap row, and the rows of lines.
type rows struct {
	text []byte
	gap  int   // end of the gap row in text
	ends []int // end of each line's row in text
}

// rows returns the text of the next write: the missing lines as a gap, and as many of lines as
// fit into the segment. The caller holds writing.
func (s *Store) rows(st *stream, lines []*clusterpb.Line, lost uint64) rows {
	s.mu.Lock()
	missing, room := st.missing, s.quota.Segment
	if n := len(st.segments); n > 0 {
		room -= st.segments[n-1].bytes
	}
	s.mu.Unlock()
	var r rows
	if lost > 0 {
		missing = missing.extend(st.task, lines, lost, lostByAgent)
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

// complete returns how many lines are complete in the first n bytes, and whether the gap row
// is.
func (r rows) complete(n int) (lines int, recorded bool) {
	for lines < len(r.ends) && r.ends[lines] <= n {
		lines++
	}
	return lines, n >= r.gap
}

// wrote updates the last segment's counts after a write of n bytes with the given complete
// lines.
func (s *Store) wrote(st *stream, n int, lines []*clusterpb.Line) {
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

// lostByAgent is the reason for lines that never arrived.
const lostByAgent = "the executor could not hold them until they were sent"

// extend returns the gap with more lines added: lost lines, or, if lost is 0, those in lines.
// If both are given, the lost ones came before lines, so the gap ends where lines begin.
func (g *Gap) extend(task string, lines []*clusterpb.Line, lost uint64, why string) *Gap {
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

// countMissing counts lines as missing. The caller holds writing.
func (s *Store) countMissing(st *stream, lines []*clusterpb.Line, lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost > 0 {
		st.missing = st.missing.extend(st.task, lines, lost, lostByAgent)
	}
	if len(lines) > 0 {
		st.missing = st.missing.extend(st.task, lines, 0, st.cause)
		s.outage.lines += uint64(len(lines))
	}
}

// failSegment closes the last segment after a failed write: the next row begins a new segment,
// so that it is not appended to an incomplete row. The caller holds writing, not mu.
func (s *Store) failSegment(st *stream, lines []*clusterpb.Line, lost uint64, err error) {
	_ = st.close() // err is reported already
	st.cause = reason(err)
	st.retryAt = time.Now().Add(retryPause)
	s.countMissing(st, lines, lost)
	s.mu.Lock()
	closed := s.closed
	began := st.retry == nil && st.missing != nil && !closed
	if began {
		if s.outage.streams == 0 {
			s.outage = outage{ended: s.outage.ended, lines: uint64(len(lines))}
		}
		s.outage.streams++
	}
	report := began && s.outage.streams == 1 && time.Since(s.outage.ended) > outagePause
	s.outage.reported = s.outage.reported || report
	s.mu.Unlock()
	if began {
		st.retry = time.AfterFunc(retryIdle, func() { s.retryWrite(st) })
	}
	if report && s.notify != nil {
		// A remedy may follow.
		s.notify(fmt.Sprintf("logs will lack lines that cells show, because task output cannot be written to %s: %s",
			filepath.Dir(filepath.Dir(st.dir)), st.cause))
	}
}

// retryWrite tries to record the missing lines although no further line has arrived.
func (s *Store) retryWrite(st *stream) {
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
		return
	}
	s.closeOver(st)
}

// recovered clears the missing lines once they are recorded. The caller holds writing, not mu.
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
	if ended && o.reported && s.notify != nil {
		s.notify(fmt.Sprintf("task output is written again; %d lines are missing: logs shows where", o.lines))
	}
}

// roll starts a new segment and drops old ones if the quota requires it. The caller holds
// writing, not mu.
func (s *Store) roll(st *stream, lines []*clusterpb.Line) error {
	if err := st.close(); err != nil {
		return fmt.Errorf("close a file of a task's lines: %w", err)
	}
	s.mu.Lock()
	dropped := s.makeRoom(st)
	g := segment{first: st.total}
	if len(lines) > 0 {
		g.first = lines[0].GetSeq()
	}
	g.path = filepath.Join(st.dir, fmt.Sprintf("%012d.log", g.first))
	if n := len(st.segments); n > 0 && st.segments[n-1].path == g.path { // a segment of an earlier driver, without a line
		g = st.segments[n-1]
		st.segments = st.segments[:n-1]
	}
	s.mu.Unlock()
	for _, path := range dropped {
		_ = os.Remove(path) // if it fails, the file stays but is neither counted nor read
	}
	if err := os.MkdirAll(st.dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of a task's lines: %w", err)
	}
	if err := os.Truncate(g.path, g.bytes); err != nil && !errors.Is(err, os.ErrNotExist) { // an incomplete row may follow
		return fmt.Errorf("remove an incomplete row of a task's lines: %w", err)
	}
	f, err := s.open(g.path)
	if err != nil {
		return fmt.Errorf("make a file for a task's lines: %w", err)
	}
	st.file = f
	s.mu.Lock()
	defer s.mu.Unlock()
	st.segments = append(st.segments, g)
	return nil
}

// dropEmpty removes the last segment if it holds nothing but the n bytes of an incomplete row
// that were just written. The caller holds writing, not mu.
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
		_ = os.Remove(g.path) // if it fails, the file holds no complete line
	}
}

// dropOldest removes a stream's first segment from the store's state and returns its path. The
// caller holds mu.
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

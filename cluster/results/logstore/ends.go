package logstore

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// bounds limits how many lines are shown at one end.
type bounds struct {
	lines int
	bytes int64 // in JSON; 0: no limit
}

// room reports whether another line of that size fits.
func (b bounds) room(lines int, bytes, size int64) bool {
	return lines < b.lines && (b.bytes == 0 || bytes+size <= b.bytes)
}

// lineSize returns the approximate size of a line in a cell.
func lineSize(l *clusterpb.Line) int64 {
	const frame = 4 // "[", "] " and the line end
	size := frame + jsonSize(l.GetText()) + len(l.GetTask())
	if l.GetLeftOut() > 0 {
		size += 64 // text about the bytes left out
	}
	return int64(size)
}

// lastFew keeps the last of the lines added to it, within bounds.
type lastFew struct {
	bounds  bounds
	lines   []*clusterpb.Line
	bytes   int64
	skipped int64 // lines dropped
}

func (f *lastFew) add(l *clusterpb.Line) {
	size := lineSize(l)
	for len(f.lines) > 0 && !f.bounds.room(len(f.lines), f.bytes, size) {
		f.drop()
	}
	f.lines = append(f.lines, l)
	f.bytes += size
}

// shrink drops the oldest lines until the size is at most bytes.
func (f *lastFew) shrink(bytes int64) {
	for len(f.lines) > 1 && f.bytes > bytes {
		f.drop()
	}
}

func (f *lastFew) drop() {
	f.bytes -= lineSize(f.lines[0])
	f.lines[0] = nil
	f.lines = f.lines[1:]
	f.skipped++
}

// ends keeps the first and the last of the lines added to it, each within bounds.
type ends struct {
	head  []*clusterpb.Line
	bytes int64 // of head
	full  bool  // later lines go to tail
	tail  lastFew
}

func newEnds(b bounds) *ends { return &ends{tail: lastFew{bounds: b}} }

func (e *ends) add(l *clusterpb.Line) {
	if size := lineSize(l); !e.full && e.tail.bounds.room(len(e.head), e.bytes, size) {
		e.head = append(e.head, l)
		e.bytes += size
		return
	}
	e.full = true
	e.tail.add(l)
}

// with returns the ends of the lines of both, in order of time.
func (e *ends) with(o *ends) *ends {
	all := slices.Concat(e.head, e.tail.lines, o.head, o.tail.lines)
	slices.SortStableFunc(all, func(a, b *clusterpb.Line) int {
		return cmp.Or(cmp.Compare(a.GetUnixNano(), b.GetUnixNano()), strings.Compare(a.GetTask(), b.GetTask()))
	})
	both := newEnds(e.tail.bounds)
	both.tail.skipped = e.tail.skipped + o.tail.skipped
	for _, l := range all {
		both.add(l)
	}
	return both
}

// shown returns the lines that a cell shows and the number of lines skipped in between.
func (e *ends) shown() *clusterpb.Lines {
	if e.tail.skipped == 0 { // nothing was skipped
		return &clusterpb.Lines{Head: mergeIdentical(slices.Concat(e.head, e.tail.lines))}
	}
	return &clusterpb.Lines{Head: mergeIdentical(e.head), Skipped: e.tail.skipped, Tail: mergeIdentical(e.tail.lines)}
}

// ends reads the first and the last of a run's lines for which wanted returns true, shortened.
// It holds at most one segment and the result in memory.
func (s *Store) ends(q Query, b bounds, lineBytes int, wanted func(*clusterpb.Line) bool) (*ends, error) {
	all := newEnds(b)
	for _, src := range s.sources(q) {
		of := newEnds(b)
		short := Shortener{Limit: lineBytes}
		for _, g := range src.segments {
			entries, err := s.readSegment(g, src.task, q, new(frames))
			if errors.Is(err, os.ErrNotExist) {
				continue // dropped by the quota meanwhile
			}
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if e.line == nil || !wanted(e.line) {
					continue
				}
				if l := short.Line(e.line); l != nil {
					of.add(l)
				}
			}
		}
		short.Sent()
		all = all.with(of)
	}
	return all, nil
}

package logstore

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// bounds are how much is shown of lines at one end.
type bounds struct {
	lines int
	bytes int64 // as JSON writes them; 0: any number
}

// room is whether another line of that size fits.
func (b bounds) room(lines int, bytes, size int64) bool {
	return lines < b.lines && (b.bytes == 0 || bytes+size <= b.bytes)
}

// lineSize is what a line takes in a cell.
func lineSize(l *clusterpb.Line) int64 {
	const frame = 4 // "[", "] " and the line's end
	size := frame + jsonSize(l.GetText()) + len(l.GetTask())
	if l.GetLeftOut() > 0 {
		size += 64 // the words for it
	}
	return int64(size)
}

// lastFew keeps the last of the lines that are added, within bounds.
type lastFew struct {
	bounds  bounds
	lines   []*clusterpb.Line
	bytes   int64
	skipped int64 // those that were not kept
}

func (f *lastFew) add(l *clusterpb.Line) {
	size := lineSize(l)
	for len(f.lines) > 0 && !f.bounds.room(len(f.lines), f.bytes, size) {
		f.drop()
	}
	f.lines = append(f.lines, l)
	f.bytes += size
}

// shrink leaves out the first until the others have that many bytes.
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

// ends keeps the first and the last of the lines that are added, each within bounds.
type ends struct {
	head  []*clusterpb.Line
	bytes int64 // of head
	full  bool  // head takes no more
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

// with is the ends of the lines of both, in order of their time.
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

// shown is what a cell shows of the lines, and how many it leaves out in between.
func (e *ends) shown() *clusterpb.Lines {
	if e.tail.skipped == 0 { // one piece
		return &clusterpb.Lines{Head: mergeAlike(slices.Concat(e.head, e.tail.lines))}
	}
	return &clusterpb.Lines{Head: mergeAlike(e.head), Skipped: e.tail.skipped, Tail: mergeAlike(e.tail.lines)}
}

// ends reads the first and the last of a run's lines that wanted lets through, shortened.
// However many there are, it holds no more of them than a segment and what it returns.
func (s *Store) ends(q Query, b bounds, lineBytes int, wanted func(*clusterpb.Line) bool) (*ends, error) {
	all := newEnds(b)
	for _, src := range s.sources(q) {
		of := newEnds(b)
		short := Shortener{Limit: lineBytes}
		for _, g := range src.segments {
			entries, err := s.readSegment(g, src.task, q, new(frames))
			if errors.Is(err, os.ErrNotExist) {
				continue // the quota took it meanwhile
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

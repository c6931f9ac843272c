package logstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/termtext"
)

// Query selects lines of one run.
type Query struct {
	Run   int32
	Task  string         // a task, or a role; "" = all
	Last  int            // 0 = all
	Grep  *regexp.Regexp // of a line without its colours
	Since time.Time
	Until Position // excludes lines stored after this position; nil: none
	From  Position // excludes lines stored before this position
	// Before excludes, of each task that it names, the lines with this number and later ones, as shown already:
	// unlike Until it limits no other task, and the lines that it excludes still overwrite frames of progress bars.
	Before map[string]uint64
}

// Position is the number of lines stored at some moment, by task of a run.
type Position map[string]uint64

// before reports whether a line had been stored when the position was taken.
func (p Position) before(l *clusterpb.Line) bool { return l.GetSeq() < p[l.GetTask()] }

// position returns the current position of a run. The caller holds mu.
func (s *Store) position(run int32) Position {
	p := Position{}
	for _, st := range s.ofRun(run) {
		p[st.task] = st.total
	}
	return p
}

// Match reports whether the query selects a line of the run.
func (q Query) Match(l *clusterpb.Line) bool {
	return q.matchTask(l.GetTask()) && (q.Grep == nil || q.Grep.MatchString(termtext.Plain(l.GetText()))) &&
		(q.Since.IsZero() || !time.Unix(0, l.GetUnixNano()).Before(q.Since)) && (q.Until == nil || q.Until.before(l)) &&
		!q.From.before(l) && !q.shown(l.GetTask(), l.GetSeq())
}

// first returns whether nothing is excluded as shown already.
func (q Query) first() bool { return len(q.Before) == 0 }

// shown returns whether Before excludes a task's line with a number.
func (q Query) shown(task string, seq uint64) bool {
	first, limited := q.Before[task]
	return limited && seq >= first
}

func (q Query) matchTask(task string) bool {
	return q.Task == "" || task == q.Task || strings.HasPrefix(task, q.Task+":")
}

// entry is a line or a gap.
type entry struct {
	line *clusterpb.Line
	gap  *Gap
	when int64 // its place among the entries of other tasks
}

func (e entry) task() string {
	if e.line != nil {
		return e.line.GetTask()
	}
	return e.gap.Task
}

// place sets when of a task's entries: of a line its time, or that of an earlier line if the clock was set back, of a
// gap that of the line before it. The last lines of all tasks are then the last ones of each: pages that end before the
// first lines seen have each line once. They have each gap with the line before it; one right before the first
// page is in that, too.
func place(of []entry) {
	latest := int64(math.MinInt64)
	for i, e := range of {
		if e.line != nil {
			latest = max(latest, e.line.GetUnixNano())
		}
		of[i].when = latest
	}
}

// source is the stored output of a task.
type source struct {
	task     string
	segments []segment
	lost     uint64
	missing  *Gap
}

// sources returns the sources of the tasks that the query selects.
func (s *Store) sources(q Query) []source {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sources []source
	for k, st := range s.streams {
		if k.run == q.Run && q.matchTask(k.task) && (q.Until == nil || q.Until[k.task] > 0) {
			sources = append(sources, source{k.task, slices.Clone(st.segments), st.lost, st.missing})
		}
	}
	return sources
}

// Read returns the selected lines in order of time, and the gaps among them. Of a progress bar it returns
// the last frame, if no line has followed it.
func (s *Store) Read(q Query) ([]*clusterpb.Line, []Gap, error) {
	var entries []entry
	for _, src := range s.sources(q) {
		of, err := s.readSource(src, q)
		if err != nil {
			return nil, nil, err
		}
		place(of)
		entries = append(entries, of...)
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.when, b.when), strings.Compare(a.task(), b.task()))
	})
	entries = lastLines(entries, q.Last, q.first())
	var lines []*clusterpb.Line
	var gaps []Gap
	for _, e := range entries {
		if e.line != nil {
			lines = append(lines, e.line)
			continue
		}
		g := *e.gap
		g.Before = len(lines)
		gaps = append(gaps, g)
	}
	return lines, gaps, nil
}

// lastLines returns the last n lines (0: all) and the gaps among them, with before also those right before them, or
// before the very first line. Gaps caused by the quota are always included.
func lastLines(entries []entry, n int, before bool) []entry {
	if n <= 0 {
		return entries
	}
	from := len(entries)
	for ; from > 0 && (n > 0 || before && entries[from-1].line == nil); from-- {
		if entries[from-1].line != nil {
			n--
		}
	}
	if !slices.ContainsFunc(entries[:from], func(e entry) bool { return e.line != nil }) {
		return entries
	}
	var kept []entry
	for _, e := range entries[:from] {
		if e.gap != nil && e.gap.To.IsZero() {
			kept = append(kept, e)
		}
	}
	return append(kept, entries[from:]...)
}

// readSource reads the selected lines of a task, in order.
func (s *Store) readSource(src source, q Query) ([]entry, error) {
	var of []entry
	before, limited := q.Before[src.task]
	if g := src.missing; g != nil && !limited && !g.To.Before(q.Since) {
		of = append(of, entry{gap: g})
	}
	have := 0
	var overwritten frames
	newer := uint64(math.MaxUint64) // number of the first line of the segment read last
	// Read the newest segment first, so that Last does not read all of them.
	for i, g := range slices.Backward(src.segments) {
		if limited && g.first > before {
			overwritten.unread = src.segments[i:]
			continue
		}
		if q.Last > 0 && have >= q.Last {
			for of[0].line == nil && !q.first() {
				of = of[1:] // the page with the line before it has it
			}
			break
		}
		if !q.Since.IsZero() && !g.last.IsZero() && g.last.Before(q.Since) || newer <= q.From[src.task] {
			break
		}
		newer = g.first
		if q.Until != nil && g.first >= q.Until[src.task] {
			continue
		}
		part, err := s.readSegment(g, src.task, q, &overwritten)
		if errors.Is(err, os.ErrNotExist) {
			break // dropped by the quota meanwhile
		}
		if err != nil {
			return nil, err
		}
		of = append(part, of...)
		for _, e := range part {
			if e.line != nil {
				have++
			}
		}
	}
	if src.lost > q.From[src.task] && q.first() {
		of = append([]entry{{gap: &Gap{Task: src.task, Lines: src.lost, Why: "quota"}}}, of...)
	}
	return lastLines(of, q.Last, q.first()), nil
}

// frames records, while the segments of a task are read from the newest to the oldest, from which streams
// later lines were read: those have overwritten a frame of a progress bar that ends a segment.
type frames struct {
	later  [2]bool
	unread []segment // newer segments that were left out, oldest first
}

// overwrites returns whether a later line of a stream exists. It reads as much of unread as it needs.
func (f *frames) overwrites(s *Store, task string, stream int) (bool, error) {
	for !f.later[stream] && len(f.unread) > 0 {
		b, err := s.read(f.unread[0].path)
		f.unread = f.unread[1:]
		if errors.Is(err, os.ErrNotExist) {
			continue // dropped by the quota meanwhile
		}
		if err != nil {
			return false, fmt.Errorf("read lines of %s: %w", task, err)
		}
		for row := range bytes.Lines(b) {
			if l, ok := parseStored(bytes.TrimSuffix(row, []byte("\n")), task); ok {
				f.later[l.GetStream()] = true
			}
		}
	}
	return f.later[stream], nil
}

// readSegment reads the selected lines of a segment, without the frames of progress bars that a later
// line has overwritten.
func (s *Store) readSegment(g segment, task string, q Query, newer *frames) ([]entry, error) {
	b, err := s.read(g.path)
	if err != nil {
		return nil, fmt.Errorf("read lines of %s: %w", task, err)
	}
	var of []entry
	last := [len(newer.later)]*clusterpb.Line{} // of each stream
	old := map[*clusterpb.Line]bool{}           // frames that were overwritten
	for seq := g.first; len(b) > 0; {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break // incomplete: being written, or left by a failed write
		}
		row := b[:i]
		b = b[i+1:]
		if gap, ok := parseGap(row, task); ok {
			shown := seq < q.From[task] || q.shown(task, seq-min(seq, gap.Lines))
			if !gap.To.Before(q.Since) && (q.Until == nil || seq-min(seq, gap.Lines) < q.Until[task]) && !shown {
				of = append(of, entry{gap: gap})
			}
			continue
		}
		if l, ok := parseStored(row, task); ok {
			if l.Seq = seq; q.Until == nil || q.Until.before(l) {
				if shown := last[l.GetStream()]; shown.GetCarriage() {
					old[shown] = true
				}
				last[l.GetStream()] = l
			}
			if q.Match(l) {
				of = append(of, entry{line: l})
			}
		}
		seq++
	}
	for stream, l := range last {
		if l.GetCarriage() {
			if old[l], err = newer.overwrites(s, task, stream); err != nil {
				return nil, err
			}
		}
		newer.later[stream] = newer.later[stream] || l != nil
	}
	return slices.DeleteFunc(of, func(e entry) bool { return old[e.line] }), nil
}

// ParseQuery returns the query of a request. The error names the invalid option.
func ParseQuery(req *clusterpb.LogsRequest) (Query, error) {
	q := Query{Run: req.GetRun(), Task: req.GetTask(), Last: int(req.GetLast()), Before: req.GetBefore()}
	if req.GetFollow() && len(q.Before) > 0 {
		return q, errors.New("lines before a position cannot be followed: ask for one of the two")
	}
	if q.Task != "" {
		if _, err := cluster.ParseTask(q.Task); err != nil {
			return q, err
		}
	}
	if req.GetGrep() != "" {
		re, err := regexp.Compile(req.GetGrep())
		if err != nil {
			return q, fmt.Errorf(
				"--grep: %w: write a regular expression, with \\ before each of . * + ? ( ) [ { that stands for itself", err)
		}
		q.Grep = re
	}
	if ns := req.GetSinceUnixNano(); ns > 0 {
		q.Since = time.Unix(0, ns)
	}
	return q, nil
}

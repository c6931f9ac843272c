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
	"github.com/tfcluster/tfcluster/cluster/termtext"
)

// Query picks lines of one run.
type Query struct {
	Run   int32
	Task  string         // "" = all; a role alone = all of it
	Last  int            // 0 = all
	Grep  *regexp.Regexp // of a line without its colours
	Since time.Time
	Until Position // what is kept later is left out; nil: nothing is
}

// Position says of each task of a run how many lines were kept.
type Position map[string]uint64

// before is whether a line was kept when the position was taken.
func (p Position) before(l *clusterpb.Line) bool { return l.GetSeq() < p[l.GetTask()] }

// position is how far the run's lines are kept now. Caller holds mu.
func (s *Store) position(run int32) Position {
	p := Position{}
	for k, st := range s.streams {
		if k.run == run {
			p[k.task] = st.total
		}
	}
	return p
}

// Match says whether a line of the run is among those asked for.
func (q Query) Match(l *clusterpb.Line) bool {
	return q.matchTask(l.GetTask()) && (q.Grep == nil || q.Grep.MatchString(termtext.Plain(l.GetText()))) &&
		(q.Since.IsZero() || !time.Unix(0, l.GetUnixNano()).Before(q.Since)) && (q.Until == nil || q.Until.before(l))
}

func (q Query) matchTask(task string) bool {
	return q.Task == "" || task == q.Task || strings.HasPrefix(task, q.Task+":")
}

// entry is a line, or what stands in the place of lines that are missing.
type entry struct {
	line *clusterpb.Line
	gap  *Gap
}

func (e entry) at() int64 {
	switch {
	case e.line != nil:
		return e.line.GetUnixNano()
	case e.gap.To.IsZero():
		return math.MinInt64
	}
	return e.gap.To.UnixNano()
}

func (e entry) task() string {
	if e.line != nil {
		return e.line.GetTask()
	}
	return e.gap.Task
}

// source is what there is of a task's lines.
type source struct {
	task     string
	segments []segment
	lost     uint64
	missing  *Gap
}

// sources are those of a query's run, of the tasks asked for.
func (s *Store) sources(q Query) []source {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sources []source
	for k, st := range s.streams {
		if k.run == q.Run && q.matchTask(k.task) {
			sources = append(sources, source{k.task, slices.Clone(st.segments), st.lost, st.missing})
		}
	}
	return sources
}

// Read returns the lines asked for in order of their time, and where lines are missing
// among them. Of a progress bar it returns the last frame, if no line has followed it.
func (s *Store) Read(q Query) ([]*clusterpb.Line, []Gap, error) {
	var entries []entry
	for _, src := range s.sources(q) {
		of, err := s.readSource(src, q)
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, of...)
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.at(), b.at()), strings.Compare(a.task(), b.task()))
	})
	entries = lastLines(entries, q.Last)
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

// lastLines are the last n lines (0: all) with the gaps among them. Gaps
// that the quota made are always among them.
func lastLines(entries []entry, n int) []entry {
	if n <= 0 {
		return entries
	}
	from := len(entries)
	for ; from > 0 && (n > 0 || entries[from-1].line == nil); from-- {
		if entries[from-1].line != nil {
			n--
		}
	}
	var kept []entry
	for _, e := range entries[:from] {
		if e.gap != nil && e.gap.To.IsZero() {
			kept = append(kept, e)
		}
	}
	return append(kept, entries[from:]...)
}

// readSource reads what is asked for of a task's lines, in their order.
func (s *Store) readSource(src source, q Query) ([]entry, error) {
	var of []entry
	if g := src.missing; g != nil && !g.To.Before(q.Since) {
		of = append(of, entry{gap: g})
	}
	have := 0
	var overwritten frames
	// From the newest segment back, so that a tail does not read it all.
	for _, g := range slices.Backward(src.segments) {
		if !q.Since.IsZero() && !g.last.IsZero() && g.last.Before(q.Since) || q.Last > 0 && have >= q.Last {
			break
		}
		part, err := s.readSegment(g, src.task, q, &overwritten)
		if errors.Is(err, os.ErrNotExist) {
			break // the quota took it meanwhile
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
	if src.lost > 0 {
		of = append([]entry{{gap: &Gap{Task: src.task, Lines: src.lost, Why: "quota"}}}, of...)
	}
	return lastLines(of, q.Last), nil
}

// frames tells, while a task's segments are read from the newest back, of which streams later
// lines were read: these have overwritten a frame of a progress bar that ends a segment.
type frames [2]bool

// readSegment reads what is asked for of a segment, without the frames of progress bars that
// a later line has overwritten.
func (s *Store) readSegment(g segment, task string, q Query, later *frames) ([]entry, error) {
	b, err := s.read(g.path)
	if err != nil {
		return nil, fmt.Errorf("read lines of %s: %w", task, err)
	}
	var of []entry
	last := [len(later)]*clusterpb.Line{} // of each stream
	old := map[*clusterpb.Line]bool{}     // frames that were overwritten
	for seq := g.first; len(b) > 0; {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break // still being written, or half a row
		}
		row := b[:i]
		b = b[i+1:]
		if gap, ok := parseGap(row, task); ok {
			if !gap.To.Before(q.Since) && (q.Until == nil || seq-min(seq, gap.Lines) < q.Until[task]) {
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
		if l.GetCarriage() && later[stream] {
			old[l] = true
		}
		later[stream] = later[stream] || l != nil
	}
	return slices.DeleteFunc(of, func(e entry) bool { return old[e.line] }), nil
}

// ParseQuery returns the query of a request. The error names the option that cannot be used.
func ParseQuery(req *clusterpb.LogsRequest) (Query, error) {
	q := Query{Run: req.GetRun(), Task: req.GetTask(), Last: int(req.GetLast())}
	if q.Task != "" {
		if _, err := cluster.ParseTask(q.Task); err != nil {
			return q, err
		}
	}
	if req.GetGrep() != "" {
		re, err := regexp.Compile(req.GetGrep())
		if err != nil {
			return q, fmt.Errorf("--grep: %w", err)
		}
		q.Grep = re
	}
	if ns := req.GetSinceUnixNano(); ns > 0 {
		q.Since = time.Unix(0, ns)
	}
	return q, nil
}

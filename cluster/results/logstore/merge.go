package logstore

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/lazyre"
)

// Merger reduces the output of tasks to what a cell shows: the first and last lines of a burst,
// with the number of lines skipped in between; progress bars only of the chief; one copy of a
// line that three or more tasks wrote; the start of a very long line. The caller adds lines as
// they arrive and calls Take ten times a second. A Merger is not safe for concurrent use.
type Merger struct {
	bounds bounds // for each end of a burst
	show   string // "all", "chief", or a task or role
	chief  string
	short  Shortener

	bars     Bars
	head     []*clusterpb.Line
	tail     lastFew
	lines    int   // shown recently: they reduce the bounds of the next lines
	bytes    int64 // size of those
	added    int   // lines since the last Take
	calm     int   // consecutive calls of Take after few lines
	flooding bool  // the head was shown; lines go to the tail until the burst is over
	ticks    int   // calls of Take since the tail was last shown
	patience int   // calls of Take until it is shown again
}

// A burst is over after calmTicks consecutive calls of Take with few lines. A burst that
// continues shows its last lines after floodTicks calls, then at growing intervals up to
// floodMost.
const (
	calmTicks  = 5
	floodTicks = 20
	floodMost  = 160
	floodShare = 8 // the tail shown then has at most 1/floodShare of a burst's bytes
	// Number of calls of Take after which shown lines, and shown bytes, no longer count.
	forgetLines = 10
	forgetBytes = 100
)

// NewMerger returns a merger with the bounds that a client requested. chief is the task whose progress
// bar is shown if the client does not ask for one task.
func NewMerger(req *clusterpb.FollowRequest, chief string) *Merger {
	b := bounds{lines: int(req.GetBurst()), bytes: req.GetBurstBytes()}
	if b.lines <= 0 {
		b.lines = 200
	}
	show := cmp.Or(req.GetShow(), "all")
	return &Merger{
		bounds: b, show: show, chief: chief, bars: NewBars(show, chief), short: Shortener{Limit: int(req.GetLineBytes())},
		tail: lastFew{bounds: b}, patience: floodTicks,
	}
}

// errorPattern matches error lines, which are shown even of tasks that are not selected.
var errorPattern = lazyre.New(`\bTraceback \(most recent|\w(Error|Exception)\b|^[EF]\d{4} |\bFATAL\b`)

func (m *Merger) wants(l *clusterpb.Line) bool {
	switch m.show {
	case "all":
		return true
	case "chief":
		if l.GetTask() == m.chief {
			return true
		}
	default:
		if l.GetTask() == m.show || strings.HasPrefix(l.GetTask(), m.show+":") {
			return true
		}
	}
	return l.GetStream() == clusterpb.Line_STDERR && errorPattern().MatchString(l.GetText())
}

// Add adds new lines.
func (m *Merger) Add(lines []*clusterpb.Line) {
	for _, l := range lines {
		if !m.wants(l) || !m.bars.Passes(l) {
			continue
		}
		m.added++
		if l = m.short.Line(l); l == nil {
			continue
		}
		if size := lineSize(l); !m.flooding && m.bounds.room(m.lines, m.bytes, size) {
			m.head = append(m.head, l)
			m.lines++
			m.bytes += size
			continue
		}
		m.flooding = true
		m.tail.add(l)
	}
}

// Take returns the lines to show now, or nil. end reports that the run is over: lines that are
// held back are then returned too.
func (m *Merger) Take(end bool) *clusterpb.Lines {
	m.calm++
	if m.added > m.bounds.lines/10 {
		m.calm = 0
	}
	m.added = 0
	m.short.Sent()
	out := &clusterpb.Lines{Head: m.head}
	m.head = nil
	if m.flooding {
		m.flood(out, end)
	} else {
		m.lines = max(0, m.lines-max(1, m.bounds.lines/forgetLines))
		m.bytes = max(0, m.bytes-max(1, m.bounds.bytes/forgetBytes))
	}
	out.Head, out.Tail = mergeIdentical(out.Head), mergeIdentical(out.Tail)
	m.bars.behind(out, &m.short)
	if len(out.Head) == 0 && len(out.Tail) == 0 {
		return nil
	}
	return out
}

// flood adds the last lines of a burst that is over, or that has continued for a long time.
func (m *Merger) flood(out *clusterpb.Lines, end bool) {
	over := end || m.calm >= calmTicks
	if m.ticks++; !over && m.ticks < m.patience {
		return
	}
	if !over && m.bounds.bytes > 0 {
		m.tail.shrink(m.bounds.bytes / floodShare)
	}
	out.Skipped, out.Tail = m.tail.skipped, m.tail.lines
	m.tail = lastFew{bounds: m.bounds}
	m.ticks, m.patience = 0, min(2*m.patience, floodMost)
	if over {
		m.flooding, m.patience = false, floodTicks
	}
}

// mergeIdentical replaces the copies of a line that three or more tasks wrote by one, at the
// first place, with a label such as "worker:0-3 ×4". Two copies stay.
func mergeIdentical(lines []*clusterpb.Line) []*clusterpb.Line {
	type lineKey struct {
		text   string
		stream clusterpb.Line_Stream
	}
	tasks := map[lineKey][]string{}
	for _, l := range lines {
		k := lineKey{l.GetText(), l.GetStream()}
		if l.GetText() != "" && l.GetLeftOut() == 0 && !l.GetCarriage() && !slices.Contains(tasks[k], l.GetTask()) {
			tasks[k] = append(tasks[k], l.GetTask())
		}
	}
	shown := map[lineKey]map[string]int{} // number of copies met, by task
	var out []*clusterpb.Line
	for _, l := range lines {
		k := lineKey{l.GetText(), l.GetStream()}
		of := tasks[k]
		if len(of) < 3 || l.GetLeftOut() > 0 { // the parts left out may differ
			out = append(out, l)
			continue
		}
		if shown[k] == nil {
			shown[k] = map[string]int{}
		}
		most := 0
		for _, n := range shown[k] {
			most = max(most, n)
		}
		shown[k][l.GetTask()]++
		if shown[k][l.GetTask()] > most { // the first task to write it this often
			out = append(out, &clusterpb.Line{
				Stream: l.GetStream(), UnixNano: l.GetUnixNano(), Text: l.GetText(), Seq: l.GetSeq(), Task: cluster.FoldTasks(of),
			})
		}
	}
	return out
}

// FromStart returns what a cell shows of the lines that a run's tasks wrote up to a position:
// the first and the last ones.
func (m *Merger) FromStart(s *Store, run int32, until Position) (*clusterpb.Lines, error) {
	bars := NewBars(m.show, m.chief)
	all, err := s.ends(Query{Run: run, Until: until}, m.bounds, m.short.Limit,
		func(l *clusterpb.Line) bool { return m.wants(l) && bars.Passes(l) })
	if err != nil {
		return nil, err
	}
	out := all.shown()
	bars.behind(out, &Shortener{Limit: m.short.Limit})
	return out, nil
}

// Missed returns the last lines that a run's tasks wrote up to a position, at most most of
// them. lines is the number of lines that the cell has not shown.
func (m *Merger) Missed(s *Store, run int32, until Position, lines int64, most int) (*clusterpb.Lines, error) {
	last, _, err := s.Read(Query{Run: run, Last: most, Until: until})
	if err != nil {
		return nil, err
	}
	few := lastFew{bounds: m.bounds}
	short, bars := Shortener{Limit: m.short.Limit}, NewBars(m.show, m.chief)
	for _, l := range last {
		if !m.wants(l) || !bars.Passes(l) {
			continue
		}
		if l = short.Line(l); l != nil {
			few.add(l)
		}
	}
	short.Sent()
	out := &clusterpb.Lines{Before: max(0, lines-int64(len(few.lines))), Head: mergeIdentical(few.lines)}
	bars.behind(out, &short)
	return out, nil
}

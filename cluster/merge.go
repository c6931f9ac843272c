package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// merger turns what tasks write into what a cell shows: a burst's first and last
// lines, with the number of those in between; a progress bar only of the chief; a
// line that three or more tasks wrote alike once. Its caller adds lines as they
// come and takes a batch ten times a second.
type merger struct {
	burst int    // lines kept at each end
	show  string // all, chief, or a task
	chief string

	head     []*clusterpb.Line
	tail     []*clusterpb.Line // a ring once full
	at       int               // its oldest
	skipped  int64
	added    int  // since the last take
	flooding bool // the head was shown; lines go to the tail until it is quiet
	ticks    int  // since the flood's tail was last shown
}

// floodTicks is after how many takes a flood that goes on shows its last lines.
const floodTicks = 20

func newMerger(burst int, show, chief string) *merger {
	if burst <= 0 {
		burst = 200
	}
	if show == "" {
		show = "all"
	}
	return &merger{burst: burst, show: show, chief: chief}
}

// alarming is what a line of a task that is not shown must hold to be shown all the same.
var alarming = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\bTraceback \(most recent|\w(Error|Exception)\b|^[EF]\d{4} |\bFATAL\b`)
})

func (m *merger) wants(l *clusterpb.Line) bool {
	if l.GetCarriage() && l.GetTask() != m.chief {
		return false
	}
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
	return l.GetStream() == clusterpb.Line_STDERR && alarming().MatchString(l.GetText())
}

func (m *merger) add(lines []*clusterpb.Line) {
	for _, l := range lines {
		if !m.wants(l) {
			continue
		}
		m.added++
		if !m.flooding && len(m.head) < m.burst {
			m.head = append(m.head, l)
			continue
		}
		m.flooding = true
		if len(m.tail) < m.burst {
			m.tail = append(m.tail, l)
			continue
		}
		m.tail[m.at] = l
		m.at = (m.at + 1) % m.burst
		m.skipped++
	}
}

// take returns what to show now, nil when there is nothing. At the end of a run
// whatever is held back comes too.
func (m *merger) take(end bool) *clusterpb.Lines {
	quiet := m.added <= m.burst/10
	m.added = 0
	out := &clusterpb.Lines{}
	out.Head = m.head
	m.head = nil
	if m.flooding {
		m.ticks++
		if quiet || end || m.ticks >= floodTicks {
			out.Skipped = m.skipped
			out.Tail = append(append([]*clusterpb.Line(nil), m.tail[m.at:]...), m.tail[:m.at]...)
			m.tail, m.at, m.skipped, m.ticks = nil, 0, 0, 0
			m.flooding = !quiet && !end
		}
	}
	if len(out.Head) == 0 && len(out.Tail) == 0 {
		return nil
	}
	out.Head = mergeAlike(lastBars(out.Head))
	out.Tail = mergeAlike(lastBars(out.Tail))
	return out
}

// lastBars keeps of consecutive frames of a progress bar only the last.
func lastBars(lines []*clusterpb.Line) []*clusterpb.Line {
	var out []*clusterpb.Line
	for i, l := range lines {
		if l.GetCarriage() && i+1 < len(lines) && lines[i+1].GetCarriage() && lines[i+1].GetTask() == l.GetTask() {
			continue
		}
		out = append(out, l)
	}
	return out
}

// mergeAlike shows a line that three or more tasks wrote alike once, at its first
// place, as "worker:0-3 ×4". Two alike stay two.
func mergeAlike(lines []*clusterpb.Line) []*clusterpb.Line {
	type alike struct {
		text   string
		stream clusterpb.Line_Stream
	}
	tasks := map[alike][]string{}
	for _, l := range lines {
		k := alike{l.GetText(), l.GetStream()}
		if l.GetText() != "" && !slices.Contains(tasks[k], l.GetTask()) {
			tasks[k] = append(tasks[k], l.GetTask())
		}
	}
	shown := map[alike]map[string]int{} // how often each task's copy was met
	var out []*clusterpb.Line
	for _, l := range lines {
		k := alike{l.GetText(), l.GetStream()}
		of := tasks[k]
		if len(of) < 3 {
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
		if shown[k][l.GetTask()] > most { // the first to write it this often
			out = append(out, &clusterpb.Line{Stream: l.GetStream(), UnixNano: l.GetUnixNano(), Text: l.GetText(), Carriage: l.GetCarriage(), Seq: l.GetSeq(), Task: label(of)})
		}
	}
	return out
}

// label is "worker:0-3 ×4" for consecutive tasks of a role, "chief,worker:0,2 ×3" otherwise.
func label(tasks []string) string {
	byRole := map[string][]int{}
	var roles []string
	for _, t := range tasks {
		id, err := ParseTask(t)
		if err != nil {
			continue
		}
		if byRole[id.Role] == nil {
			roles = append(roles, id.Role)
		}
		byRole[id.Role] = append(byRole[id.Role], id.Index)
	}
	slices.SortFunc(roles, func(a, b string) int { return CompareTasks(TaskID{Role: a}, TaskID{Role: b}) })
	var parts []string
	for _, r := range roles {
		if r == Chief {
			parts = append(parts, r)
			continue
		}
		parts = append(parts, r+":"+ranges(byRole[r]))
	}
	return fmt.Sprintf("%s ×%d", strings.Join(parts, ","), len(tasks))
}

// ranges is "0-3,7" for 0 1 2 3 7.
func ranges(ns []int) string {
	slices.Sort(ns)
	var parts []string
	for i := 0; i < len(ns); {
		j := i
		for j+1 < len(ns) && ns[j+1] == ns[j]+1 {
			j++
		}
		if j > i {
			parts = append(parts, strconv.Itoa(ns[i])+"-"+strconv.Itoa(ns[j]))
		} else {
			parts = append(parts, strconv.Itoa(ns[i]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

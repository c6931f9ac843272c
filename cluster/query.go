package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Query picks lines of one run.
type Query struct {
	Run   int32
	Task  string // "" = all; a role alone = all of it
	Last  int    // 0 = all
	Grep  *regexp.Regexp
	Since time.Time
	until position // what is kept later is left out, where it is set
}

// position says of each task of a run how many lines were kept.
type position map[string]uint64

// before is whether a line was kept when the position was taken.
func (p position) before(l *clusterpb.Line) bool { return l.GetSeq() < p[l.GetTask()] }

// position is how far the run's lines are kept now. Caller holds mu.
func (s *Store) position(run int32) position {
	p := position{}
	for k, st := range s.streams {
		if k.run == run {
			p[k.task] = st.total
		}
	}
	return p
}

// Match says whether a line of the run is among those asked for.
func (q Query) Match(l *clusterpb.Line) bool {
	return q.matchTask(l.GetTask()) && (q.Grep == nil || q.Grep.MatchString(l.GetText())) &&
		(q.Since.IsZero() || !time.Unix(0, l.GetUnixNano()).Before(q.Since)) && (q.until == nil || q.until.before(l))
}

func (q Query) matchTask(task string) bool {
	return q.Task == "" || task == q.Task || strings.HasPrefix(task, q.Task+":")
}

// Read returns the lines asked for in order of their time, and in words what the
// quota took of them.
func (s *Store) Read(q Query) (lines []*clusterpb.Line, gap string, err error) {
	type source struct {
		task     string
		segments []segment
	}
	s.mu.Lock()
	var sources []source
	var lost []string
	for k, st := range s.streams {
		if k.run != q.Run || !q.matchTask(k.task) {
			continue
		}
		sources = append(sources, source{k.task, slices.Clone(st.segments)})
		if st.lost > 0 {
			lost = append(lost, fmt.Sprintf("%s: the oldest %d lines are gone (quota)", k.task, st.lost))
		}
	}
	s.mu.Unlock()
	for _, src := range sources {
		var of []*clusterpb.Line
		// From the newest segment back, so that a tail does not read it all.
		for _, g := range slices.Backward(src.segments) {
			if !q.Since.IsZero() && !g.last.IsZero() && g.last.Before(q.Since) {
				break
			}
			part, err := s.readSegment(g, src.task, q)
			if errors.Is(err, os.ErrNotExist) {
				break // the quota took it meanwhile
			}
			if err != nil {
				return nil, "", err
			}
			of = append(part, of...)
			if q.Last > 0 && len(of) >= q.Last {
				of = of[len(of)-q.Last:]
				break
			}
		}
		lines = append(lines, of...)
	}
	slices.SortStableFunc(lines, func(a, b *clusterpb.Line) int {
		switch {
		case a.GetUnixNano() < b.GetUnixNano():
			return -1
		case a.GetUnixNano() > b.GetUnixNano():
			return 1
		}
		return strings.Compare(a.GetTask(), b.GetTask())
	})
	if q.Last > 0 && len(lines) > q.Last {
		lines = lines[len(lines)-q.Last:]
	}
	slices.Sort(lost)
	return lines, strings.Join(lost, "; "), nil
}

func (s *Store) readSegment(g segment, task string, q Query) ([]*clusterpb.Line, error) {
	b, err := s.read(g.path)
	if err != nil {
		return nil, fmt.Errorf("read lines of %s: %w", task, err)
	}
	var lines []*clusterpb.Line
	for seq := g.first; len(b) > 0; seq++ {
		var row []byte
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break // still being written
		}
		row, b = b[:i], b[i+1:]
		l, ok := parseStored(row, task)
		if !ok {
			continue
		}
		if l.Seq = seq; q.Match(l) {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// parseStored reads one line of a segment; false when it is none.
func parseStored(row []byte, task string) (*clusterpb.Line, bool) {
	const head = len(stampLayout) + 3
	if len(row) < head || row[len(stampLayout)] != ' ' || row[head-1] != ' ' {
		return nil, false
	}
	at, err := time.Parse(stampLayout, string(row[:len(stampLayout)]))
	if err != nil {
		return nil, false
	}
	l := &clusterpb.Line{UnixNano: at.UnixNano(), Text: strings.ToValidUTF8(string(row[head:]), string(utf8.RuneError)), Task: task}
	switch mark := row[head-2]; mark {
	case 'O', 'o':
		l.Carriage = mark == 'o'
	case 'E', 'e':
		l.Stream, l.Carriage = clusterpb.Line_STDERR, mark == 'e'
	default:
		return nil, false
	}
	return l, true
}

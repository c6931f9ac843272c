package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// screen is a terminal: what is on it, and what has left it at the top.
type screen struct {
	height, width int
	gone, rows    []string
	row, column   int
	cleared       int
}

var controls = regexp.MustCompile(`^\x1b\[(\d*)([AJm])`)

func (s *screen) Write(p []byte) (int, error) {
	for text := string(p); text != ""; {
		if m := controls.FindStringSubmatch(text); m != nil {
			switch n, _ := strconv.Atoi(m[1]); m[2] {
			case "A":
				s.row = max(0, s.row-n)
			case "J":
				s.rows[s.row] = s.rows[s.row][:s.column]
				s.rows = s.rows[:s.row+1]
				s.cleared++
			}
			text = text[len(m[0]):]
			continue
		}
		switch c := text[0]; c {
		case '\r':
			s.column = 0
		case '\n':
			s.newline()
		default:
			if s.column == s.width {
				s.newline()
			}
			row := []byte(s.rows[s.row])
			row = append(row[:s.column], append([]byte{c}, row[min(s.column+1, len(row)):]...)...)
			s.rows[s.row] = string(row)
			s.column++
		}
		text = text[1:]
	}
	return len(p), nil
}

func (s *screen) newline() {
	s.row, s.column = s.row+1, 0
	if s.row == len(s.rows) {
		s.rows = append(s.rows, "")
	}
	if s.row == s.height {
		s.gone, s.rows, s.row = append(s.gone, s.rows[0]), s.rows[1:], s.row-1
	}
}

func (s *screen) text() string {
	return strings.Join(append(append([]string{}, s.gone...), s.rows...), "|")
}

func shows(text string) map[string]any { return map[string]any{"text/plain": text} }

// TestTerminal: on a terminal the status block and a bar stay below the lines, redrawn in place.
func TestTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		write   func(*terminal)
		now     string
		end     string
		height  int
		outPipe string // the same where the output is a pipe
	}{
		{"lines above a display", func(t *terminal) {
			t.Display("a", shows("step 1\ntasks"), nil)
			t.Stdout("one\ntwo\n")
			t.Update("a", shows("step 2\ntasks"), nil)
			t.Stderr("three\n")
		}, "one|two|three|step 2|tasks|", "one|two|three|step 2|tasks|", 10, "one|two|three|step 2|tasks|"},
		{"a bar between them", func(t *terminal) {
			t.Display("a", shows("step 1"), nil)
			t.Stdout("[w0] \x1b[32m1/3\x1b[0m\r")
			t.Stdout("[w1] line           \n[w0] \x1b[32m1/3\x1b[0m\r")
			t.Stdout("[w0] 2/3          \r")
		}, "[w1] line|[w0] 2/3|step 1|", "[w1] line|[w0] 2/3|step 1|", 10, "[w1] line|[w0] 2/3|step 1|"},
		{"a bar that ends", func(t *terminal) {
			t.Stdout("[w0] 1/3\r")
			t.Stderr("warning\n")
			t.Stdout("[w0] \x1b[1m3/3\x1b[0m\n")
		}, "warning|[w0] 3/3|", "warning|[w0] 3/3|", 10, "warning|[w0] 3/3|"},
		{"a bar that is wiped", func(t *terminal) {
			t.Stdout("[w0] 1/3\r")
			t.Stdout("        \r")
		}, "", "", 10, ""},
		{"one display after another", func(t *terminal) {
			t.Display("a", shows("reserving"), nil)
			t.Update("a", shows("ready"), nil)
			t.Display("b", shows("run 1"), nil)
			t.Stdout("line\n")
			t.Update("b", shows("run 1 finished"), nil)
		}, "ready|line|run 1 finished|", "ready|line|run 1 finished|", 10, "ready|line|run 1 finished|"},
		{"wide lines", func(t *terminal) {
			t.Display("a", shows(strings.Repeat("x", 25)), nil)
			t.Stdout("line\n")
			t.Stdout(strings.Repeat("=", 30) + "\r")
		}, "line|===================|xxxxxxxxxxxxxxxxxxxx|xxxxx|", "line|====================|==========|" +
			"xxxxxxxxxxxxxxxxxxxx|xxxxx|", 10, "line|" + strings.Repeat("=", 30) + "|" + strings.Repeat("x", 25) + "|"},
		{"higher than the screen", func(t *terminal) {
			t.Display("a", shows("1\n2\n3\n4\n5"), nil)
			t.Stdout("line\n")
			t.Update("a", shows("1\n2\n3\n4\n6"), nil)
		}, "line|1|2|3|", "line|1|2|3|4|6|", 4, "line|1|2|3|4|6|"},
	} {
		s := &screen{height: tt.height, width: 20, rows: []string{""}}
		term := &terminal{streams: [2]*stream{{w: s, isScreen: true}, {w: s, isScreen: true}}, size: func() (int, int) {
			return s.height, s.width
		}, shown: map[string]string{}}
		tt.write(term)
		if got := s.text(); got != tt.now {
			t.Errorf("%s: the screen shows %q, not %q", tt.name, got, tt.now)
		}
		term.finish()
		if got := s.text(); got != tt.end {
			t.Errorf("%s: at the end the screen shows %q, not %q", tt.name, got, tt.end)
		}
		var b strings.Builder
		term = &terminal{streams: [2]*stream{{w: &b}, {w: &b}}, shown: map[string]string{}, pending: map[string]string{}}
		tt.write(term)
		term.finish()
		if got := strings.ReplaceAll(b.String(), "\n", "|"); got != tt.outPipe {
			t.Errorf("%s: a pipe gets %q, not %q", tt.name, got, tt.outPipe)
		}
	}
}

// TestTerminalOneBlock: however many lines come, the status block is on the screen once.
func TestTerminalOneBlock(t *testing.T) {
	t.Parallel()
	s := &screen{height: 8, width: 20, rows: []string{""}}
	term := &terminal{streams: [2]*stream{{w: s, isScreen: true}, {w: s, isScreen: true}}, size: func() (int, int) {
		return s.height, s.width
	}, shown: map[string]string{}}
	for i := range 50 {
		term.Display("run", shows(fmt.Sprintf("step %d\nworker:0\nworker:1", i)), nil)
		term.Stdout(fmt.Sprintf("line %d\n", i))
		term.Update("run", shows(fmt.Sprintf("step %d\nworker:0\nworker:1", i+1)), nil)
	}
	if text := s.text(); strings.Count(text, "worker:0") != 1 || strings.Count(text, "line ") != 50 ||
		!strings.HasSuffix(text, "|line 49|step 50|worker:0|worker:1|") {
		t.Errorf("the screen shows %q", text)
	}
}

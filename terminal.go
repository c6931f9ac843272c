package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/internal/termtext"
)

// terminal shows a verb's output in a shell: displays as their plain text. On a terminal the
// newest display and progress bars are redrawn in place, below everything else; elsewhere
// displays are written once, as they end, with no colours and of a bar only its last frame.
type terminal struct {
	streams    [2]*stream
	size       func() (rows, columns int) // of the screen; nil where standard output is none
	interrupts chan struct{}

	mu      sync.Mutex
	shown   map[string]string // guarded by mu: by display id
	live    string            // guarded by mu: the display that is redrawn
	drawn   int               // guarded by mu: how many rows of the screen bars and live take
	pending map[string]string // guarded by mu: displays that were not written yet, without a screen
	order   []string          // guarded by mu: of pending
}

// stream is standard output or standard error.
type stream struct {
	w        io.Writer
	isScreen bool
	rest     string // what follows the last line's end: a progress bar's frame with its \r, or a part of a line
}

func newTerminal(out, err *os.File) *terminal {
	t := &terminal{
		streams:    [2]*stream{{w: out, isScreen: isTerminal(out)}, {w: err, isScreen: isTerminal(err)}},
		interrupts: make(chan struct{}, 2), shown: map[string]string{}, pending: map[string]string{},
	}
	if t.streams[0].isScreen {
		t.size = func() (int, int) {
			if s, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ); err == nil && s.Row > 0 && s.Col > 0 {
				return int(s.Row), int(s.Col)
			}
			return 24, 80
		}
	}
	return t
}

// Stdout writes text.
func (t *terminal) Stdout(text string) { t.write(t.streams[0], text) }

// Stderr writes text.
func (t *terminal) Stderr(text string) { t.write(t.streams[1], text) }

func (t *terminal) write(s *stream, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := s.add(text)
	if t.size == nil || !s.isScreen {
		s.send(lines)
		lines = ""
	}
	t.redraw(lines)
}

// add returns the lines that text completes, and keeps what follows them.
func (s *stream) add(text string) string {
	end := strings.LastIndexByte(text, '\n') + 1
	if end == 0 {
		s.rest = lastFrame(s.rest + text)
		return ""
	}
	lines := s.rest + text[:end]
	s.rest = lastFrame(text[end:])
	if !strings.Contains(lines, "\r") {
		return lines
	}
	var b strings.Builder
	for line := range strings.Lines(lines) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if i := strings.LastIndexByte(line, '\r'); i >= 0 { // it overwrites a bar, with blanks at its end
			line = strings.TrimRight(line[i+1:], " ")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// lastFrame is what can be seen of a text without a line's end, and its \r.
func lastFrame(text string) string {
	frame, ended := strings.CutSuffix(text, "\r")
	frame = frame[strings.LastIndexByte(frame, '\r')+1:]
	if !ended {
		return frame
	}
	if frame = strings.TrimRight(frame, " "); frame == "" {
		return ""
	}
	return frame + "\r"
}

// send writes whole lines.
func (s *stream) send(lines string) {
	if !s.isScreen && strings.ContainsRune(lines, '\x1b') {
		var b strings.Builder
		for line := range strings.Lines(lines) {
			b.WriteString(termtext.Plain(line) + "\n")
		}
		lines = b.String()
	}
	if lines != "" {
		_, _ = io.WriteString(s.w, lines) // a reader that went away is told by SIGPIPE
	}
}

// Display shows a bundle's plain text.
func (t *terminal) Display(id string, data, _ map[string]any) {
	text := plain(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.size == nil && id == "":
		t.streams[0].send(text)
	case t.size == nil: // held until it is settled: the next display, or the end
		t.flush()
		t.order, t.pending[id] = append(t.order, id), text
	case id == "":
		t.redraw(text)
	default:
		t.show(id, text)
	}
}

// Update replaces what was shown, in its place if nothing was displayed since.
func (t *terminal) Update(id string, data, _ map[string]any) {
	text := plain(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case text == t.shown[id]:
	case t.size == nil:
		if !slices.Contains(t.order, id) {
			t.order = append(t.order, id)
		}
		t.pending[id] = text
	default:
		t.show(id, text)
	}
}

// show makes a display the one that is redrawn; the one before stays as it is.
func (t *terminal) show(id, text string) {
	before := ""
	if t.live != "" && t.live != id {
		before = t.shown[t.live]
	}
	t.live, t.shown[id] = id, text
	t.redraw(before)
}

// redraw writes lines above the bars and the live display.
func (t *terminal) redraw(lines string) {
	if t.size == nil {
		return
	}
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", t.drawn)
	}
	b.WriteString(lines)
	height, columns := t.size()
	t.drawn = 0
	for _, line := range t.region(columns) {
		rows := max(1, (termtext.Columns(line)+columns-1)/columns)
		if t.drawn+rows >= height { // what is scrolled away cannot be redrawn
			break
		}
		t.drawn += rows
		b.WriteString(line + "\n")
	}
	if b.Len() > 0 {
		_, _ = io.WriteString(t.streams[0].w, b.String()) // a reader that went away is told by SIGPIPE
	}
}

// region is the lines that are redrawn.
func (t *terminal) region(columns int) []string {
	var lines []string
	for _, s := range t.streams {
		if bar := strings.TrimSuffix(s.rest, "\r"); bar != "" && s.isScreen {
			lines = append(lines, termtext.Cut(bar, columns-1))
		}
	}
	for line := range strings.Lines(t.shown[t.live]) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// finish leaves everything as it is in the end.
func (t *terminal) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rest string
	for _, s := range t.streams {
		if s.rest == "" {
			continue
		}
		last := strings.TrimSuffix(s.rest, "\r") + "\n"
		if s.rest = ""; t.size != nil && s.isScreen {
			rest += last
		} else {
			s.send(last)
		}
	}
	if t.size == nil {
		t.flush()
		return
	}
	end := rest + t.shown[t.live]
	t.live = ""
	t.redraw(end)
}

func (t *terminal) flush() {
	for _, id := range t.order {
		t.shown[id] = t.pending[id]
		t.streams[0].send(t.pending[id])
	}
	t.order = nil
}

// Interrupts yields one value for each Ctrl-C.
func (t *terminal) Interrupts() <-chan struct{} { return t.interrupts }

func (t *terminal) interrupt() {
	select {
	case t.interrupts <- struct{}{}:
	default:
	}
}

func plain(data map[string]any) string {
	text, _ := data["text/plain"].(string)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

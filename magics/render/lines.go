package render

import (
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Printer writes tasks' lines into a cell, many to a message. Owned by the verb.
type Printer struct {
	out Writer
	say func(string) string
	// short cuts long lines; a driver has cut those of a run that is followed.
	short logstore.Shortener
	// from are the options with which logs shows these lines: of which cluster, of which run.
	from string

	OneStream bool // all lines go to standard output
	Cell      bool // harmless lines too, because a notebook's front end shows standard error in red
	Raw       bool // harmless lines are not dimmed

	stderr bool // of text
	text   strings.Builder
	bar    *clusterpb.Line // the progress bar's frame that was shown last and is not overwritten
	barErr bool            // drawn is on standard error
	drawn  string          // what stands on the last line of bar's stream: bar's text, "" where it was wiped
}

// NewPrinter makes a printer that cuts lines at limit bytes, as JSON has them; 0 is no limit. say
// writes a command as the user types it.
func NewPrinter(out Writer, say func(string) string, limit int) *Printer {
	return &Printer{out: out, say: say, short: logstore.Shortener{Limit: limit}}
}

// Shows sets whose lines follow, for the hints that name the command which shows all of them.
// Where the run's number is not known, run is 0.
func (p *Printer) Shows(cluster string, run int32) {
	p.from = " -c " + cluster
	if run > 0 {
		p.from += fmt.Sprintf(" --run %d", run)
	}
}

// firstTask is the first task of a line's label, which may name several: "worker:0-3 ×4" or
// "chief,worker:0,2 ×3".
func firstTask(label string) string {
	tasks, _, merged := strings.Cut(label, " ×")
	if !merged {
		return label
	}
	first, _, _ := strings.Cut(tasks, ",")
	role, numbers, numbered := strings.Cut(first, ":")
	if !numbered {
		return role + ":0"
	}
	number, _, _ := strings.Cut(numbers, "-")
	return role + ":" + number
}

// Burst writes what came at once.
func (p *Printer) Burst(l *clusterpb.Lines) {
	if l == nil {
		return
	}
	if n := l.GetBefore(); n > 0 {
		p.Put(false, fmt.Sprintf("… %s since the last cell: %s\n", Plural(n, "earlier line"), p.say("logs"+p.from)))
	}
	p.Lines(l.GetHead())
	if n := l.GetSkipped(); n > 0 {
		p.Put(false, fmt.Sprintf("… %s in between: %s\n", Plural(n, "line"), p.say("logs"+p.from)))
	}
	p.Lines(l.GetTail())
	p.Flush()
}

// Lines writes lines, long ones cut.
func (p *Printer) Lines(lines []*clusterpb.Line) {
	shown := make([]*clusterpb.Line, 0, len(lines))
	for _, l := range lines {
		if l = p.short.Line(l); l != nil {
			shown = append(shown, l)
		}
	}
	p.short.Sent()
	for _, l := range shown {
		p.line(l)
	}
}

// WithGaps writes lines, and what is missing among them in its place.
func (p *Printer) WithGaps(lines []*clusterpb.Line, gaps []logstore.Gap) {
	at := 0
	for _, g := range gaps {
		p.Lines(lines[at:g.Before])
		p.Gap(g.String())
		at = g.Before
	}
	p.Lines(lines[at:])
}

// Gap says which lines are missing.
func (p *Printer) Gap(text string) { p.Put(false, "… "+text+"\n") }

// line writes one line under its task's name. A progress bar's frame is overwritten by what
// comes next, and drawn again behind it unless that was of the same stream of its task.
func (p *Printer) line(l *clusterpb.Line) {
	if b := p.bar; b != nil && (l.GetCarriage() || b.GetTask() == l.GetTask() && b.GetStream() == l.GetStream()) {
		p.bar = nil
	}
	if l.GetCarriage() {
		p.bar = l
		return
	}
	stderr, text := p.toStderr(l), p.textOf(l)
	if l.GetStream() == clusterpb.Line_STDERR && !p.Raw && errtext.Harmless(l.GetText()) {
		stderr, text = stderr && !p.Cell, dim+text+undim
	}
	p.Put(stderr, text+"\n")
}

// dim is grey in dark and light themes; JupyterLab ignores SGR 2, which is made for this.
const dim, undim = "\x1b[38;5;244m", "\x1b[0m"

func (p *Printer) toStderr(l *clusterpb.Line) bool {
	return l.GetStream() == clusterpb.Line_STDERR && !p.OneStream
}

// textOf is a line as it is shown, without its end.
func (p *Printer) textOf(l *clusterpb.Line) string {
	text := "[" + l.GetTask() + "] " + strings.TrimRight(l.GetText(), "\r\n")
	if n := l.GetLeftOut(); n > 0 { // a shell's logs shows it whole, a cell's does not
		text += fmt.Sprintf("… %s more: tfcluster logs%s --task %s", BytesText(uint64(n)), p.from, firstTask(l.GetTask()))
	}
	return text
}

// Heading says whose lines follow; "" is none.
func (p *Printer) Heading(text string) {
	if text != "" {
		p.Put(false, "── "+text+"\n")
	}
}

// Note writes a note on a line of its own.
func (p *Printer) Note(n *clusterpb.Note) {
	p.Put(true, NoteText(n)+"\n")
	p.Flush()
}

// wipe overwrites the bar that stands there with the first line of text, or with blanks where
// text is for the other stream. Front ends overwrite it character by character, colours counted.
func (p *Printer) wipe(stderr bool, text string) string {
	drawn := len(utf16.Encode([]rune(p.drawn)))
	p.drawn = ""
	if stderr != p.barErr {
		p.write(p.barErr, strings.Repeat(" ", drawn)+"\r")
		return text
	}
	end := strings.IndexAny(text, "\r\n")
	if end < 0 {
		end = len(text)
	}
	return text[:end] + strings.Repeat(" ", max(0, drawn-len(utf16.Encode([]rune(text[:end]))))) + text[end:]
}

// Put adds text, first sending what stands there for the other stream.
func (p *Printer) Put(stderr bool, text string) {
	if p.drawn != "" {
		text = p.wipe(stderr, text)
	}
	p.write(stderr, text)
}

func (p *Printer) write(stderr bool, text string) {
	if stderr != p.stderr {
		p.send()
		p.stderr = stderr
	}
	p.text.WriteString(text)
	if p.text.Len() > 1<<16 {
		p.send()
	}
}

// Flush writes what is gathered, with the progress bar behind it, and makes the Writer send it at once.
func (p *Printer) Flush() {
	if p.bar != nil {
		if text := p.textOf(p.bar); text != p.drawn {
			stderr := p.toStderr(p.bar)
			p.Put(stderr, text+"\r")
			p.barErr, p.drawn = stderr, text
		}
	}
	p.send()
	if f, ok := p.out.(flusher); ok {
		f.Flush()
	}
}

func (p *Printer) send() {
	if p.text.Len() == 0 {
		return
	}
	if p.stderr {
		p.out.Stderr(p.text.String())
	} else {
		p.out.Stdout(p.text.String())
	}
	p.text.Reset()
}

// Close writes what is gathered and ends the line of a progress bar.
func (p *Printer) Close() {
	p.Flush()
	if p.drawn != "" {
		p.write(p.barErr, "\n")
		p.bar, p.drawn = nil, ""
		p.send()
	}
}

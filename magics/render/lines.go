package render

import (
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/logstore"
)

// Printer writes tasks' lines into a cell, many to a message. Owned by the verb.
type Printer struct {
	out Writer
	say func(string) string
	// short cuts long lines; a driver has cut those of a run that is followed.
	short logstore.Shortener
	// from are the options with which logs shows these lines: of which cluster, of which run.
	from string

	stderr bool
	text   strings.Builder
	bar    string // task whose progress bar stands without an end
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
func (p *Printer) Gap(text string) {
	p.endBar()
	p.Put(false, "… "+text+"\n")
}

// line writes one line under its task's name. A progress bar's frame is
// overwritten by the same task's next line, and ended before another's.
func (p *Printer) line(l *clusterpb.Line) {
	stderr := l.GetStream() == clusterpb.Line_STDERR
	if p.bar != "" && p.bar != l.GetTask() {
		p.endBar()
	}
	text := "[" + l.GetTask() + "] " + strings.TrimRight(l.GetText(), "\r\n")
	if n := l.GetLeftOut(); n > 0 { // a shell's logs shows it whole, a cell's does not
		text += fmt.Sprintf("… %s more: tfcluster logs%s --task %s", BytesText(uint64(n)), p.from, firstTask(l.GetTask()))
	}
	if l.GetCarriage() {
		p.Put(stderr, text+"\r")
		p.bar = l.GetTask()
		return
	}
	p.Put(stderr, text+"\n")
	p.bar = ""
}

// Heading says whose lines follow; "" is none.
func (p *Printer) Heading(text string) {
	if text != "" {
		p.endBar()
		p.Put(false, "── "+text+"\n")
	}
}

// Note writes a note on a line of its own.
func (p *Printer) Note(n *clusterpb.Note) {
	p.endBar()
	p.Put(true, NoteText(n)+"\n")
	p.Flush()
}

func (p *Printer) endBar() {
	if p.bar != "" {
		p.Put(p.stderr, "\n")
		p.bar = ""
	}
}

// Put adds text, first sending what stands there for the other stream.
func (p *Printer) Put(stderr bool, text string) {
	if stderr != p.stderr {
		p.Flush()
		p.stderr = stderr
	}
	p.text.WriteString(text)
	if p.text.Len() > 1<<16 {
		p.Flush()
	}
}

// Flush writes what is gathered.
func (p *Printer) Flush() {
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

// Close ends a progress bar and writes what is gathered.
func (p *Printer) Close() {
	p.endBar()
	p.Flush()
}

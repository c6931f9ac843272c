package magics

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
	"github.com/tfcluster/tfcluster/internal/termtext"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/session"
)

// TestLogsOfLongLines: a cell gets the start of a long line and how to see it whole, a
// shell the line; both get all lines on standard output.
func TestLogsOfLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	lines := []*clusterpb.Line{{Task: "worker:1", Text: long, Continues: true}, {
		Task: "worker:1",
		Text: long,
	}, {Task: "worker:1", Text: "next", Stream: clusterpb.Line_STDERR}}
	for _, shell := range []bool{false, true} {
		drivers := newFakeDrivers(t)
		drivers.prep = func(f *fakeCluster) { f.lines = lines }
		s := NewSession(t.Context(), session.Options{
			Engines: engines(), Connector: drivers, Shell: shell, Python: "python3", WorkingDir: "/work/dir", Client: "test",
		})
		t.Cleanup(s.Close)
		if _, err := s.Launch(t.Context(), &clusterpb.ReserveRequest{Name: "here"}); err != nil {
			t.Fatal(err)
		}
		out := newRecord()
		if _, err := s.RunArgv(t.Context(), []string{"logs", "-c", "here", "--run", "3"}, out, nil); err != nil {
			t.Fatal(err)
		}
		text := out.settle()
		want := "out| [worker:1] " + long[:4<<10] +
			"… 2.0 MiB more: tfcluster logs -c here --run 3 --task worker:1\nout| [worker:1] next\n"
		if shell {
			want = "out| [worker:1] " + long + "\nout| [worker:1] " + long + "\nout| [worker:1] next\n"
		}
		if text != want {
			t.Errorf("shell %v: %d bytes, from %.100q to %q", shell, len(text), text, text[max(0, len(text)-100):])
		}
	}
}

// TestHarmlessLines: TensorFlow's harmless lines are grey, and not on a cell's standard error.
func TestHarmlessLines(t *testing.T) {
	t.Parallel()
	const text = "W0000 00:00:1795425002.309419   13436 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not " +
		"be optimized"
	lines := []*clusterpb.Line{
		{Task: "worker:0", Text: text, Stream: clusterpb.Line_STDERR},
		{Task: "worker:0", Text: "mine", Stream: clusterpb.Line_STDERR},
	}
	for name, tt := range map[string]struct {
		set  func(*render.Printer)
		want string
	}{
		"a shell": {
			func(*render.Printer) {},
			"err| \x1b[38;5;244m[worker:0] " + text + "\x1b[0m\nerr| [worker:0] mine\n",
		},
		"a cell": {
			func(p *render.Printer) { p.Cell = true },
			"out| \x1b[38;5;244m[worker:0] " + text + "\x1b[0m\nerr| [worker:0] mine\n",
		},
		"logs --raw": {
			func(p *render.Printer) { p.OneStream, p.Raw = true, true },
			"out| [worker:0] " + text + "\nout| [worker:0] mine\n",
		},
	} {
		out := newRecord()
		p := render.NewPrinter(out, nil, 0)
		tt.set(p)
		p.Lines(lines)
		p.Close()
		if got := out.settle(); got != tt.want {
			t.Errorf("%s shows\n%q, not\n%q", name, got, tt.want)
		}
	}
}

// TestPrinterGaps: what is missing is shown in its place, and not on a progress bar's line.
func TestPrinterGaps(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 15, 12, 3, 0, time.Local)
	out := newRecord()
	p := render.NewPrinter(out, nil, 0)
	p.WithGaps([]*clusterpb.Line{{Task: "worker:0", Text: "1/3", Carriage: true}, {Task: "worker:0", Text: "behind"}},
		[]logstore.Gap{
			{Task: "worker:0", Lines: 123, From: at, To: at.Add(5 * time.Second), Why: "no space left on device", Before: 1},
		})
	p.Close()
	want := "out| … worker:0: 123 lines were not kept: no space left on device, 15:12:03 to 15:12:08\n" +
		"out| [worker:0] behind\n"
	if got := out.settle(); got != want {
		t.Errorf("it shows\n%q", got)
	}
}

// frontEnd is a cell's standard output and error as JupyterLab keeps them: a carriage return
// goes to the start of the line, and what follows overwrites it character by character, those
// of colours counted.
type frontEnd struct{ out, err cellText }

func (f *frontEnd) Stdout(text string) { f.out.write(text) }
func (f *frontEnd) Stderr(text string) { f.err.write(text) }

type cellText struct {
	lines []string
	now   []uint16
	at    int
}

func (c *cellText) write(text string) {
	for _, u := range utf16.Encode([]rune(text)) {
		switch {
		case u == '\r':
			c.at = 0
		case u == '\n':
			c.lines, c.now, c.at = append(c.lines, string(utf16.Decode(c.now))), nil, 0
		case c.at < len(c.now):
			c.now[c.at] = u
			c.at++
		default:
			c.now = append(c.now, u)
			c.at++
		}
	}
}

// shown is what a reader sees; a bar that can still move ends with "…".
func (c *cellText) shown() string {
	var lines []string
	for _, l := range append(slices.Clone(c.lines), string(utf16.Decode(c.now))+"…") {
		lines = append(lines, strings.TrimRight(termtext.Plain(l), " "))
	}
	return strings.Join(lines, "|")
}

// TestPrinterBars: a progress bar is overwritten by whatever comes next, and drawn again behind
// what is not of its own stream.
func TestPrinterBars(t *testing.T) {
	t.Parallel()
	out := func(task, text string) *clusterpb.Line { return &clusterpb.Line{Task: task, Text: text} }
	bar := func(task, text string) *clusterpb.Line {
		return &clusterpb.Line{Task: task, Text: text, Carriage: true}
	}
	fails := func(text string) *clusterpb.Line {
		return &clusterpb.Line{Task: "worker:0", Text: text, Stream: clusterpb.Line_STDERR}
	}
	const long = "\x1b[1m1/2\x1b[0m \x1b[32m━━━\x1b[0m\x1b[37m━━━\x1b[0m"
	for _, tt := range []struct {
		name             string
		bursts           [][]*clusterpb.Line
		now, end, errors string // standard output before and after the end; standard error
	}{
		{
			"a bar and its last line",
			[][]*clusterpb.Line{{bar("worker:0", long)}, {bar("worker:0", "2")}, {out("worker:0", "3")}},
			"[worker:0] 3|…", "[worker:0] 3|…", "…",
		},
		{
			"a bar that moves",
			[][]*clusterpb.Line{{bar("worker:0", long)}, {bar("worker:0", "2")}},
			"[worker:0] 2 …", "[worker:0] 2|…", "…",
		},
		{
			"lines of others",
			[][]*clusterpb.Line{{bar("worker:0", long)}, {out("worker:1", "a"), out("worker:1", "b")}, {out("worker:1", "c")}},
			"[worker:1] a|[worker:1] b|[worker:1] c|[worker:0] 1/2 ━━━━━━…",
			"[worker:1] a|[worker:1] b|[worker:1] c|[worker:0] 1/2 ━━━━━━|…", "…",
		},
		{
			"the other stream",
			[][]*clusterpb.Line{{bar("worker:0", long)}, {fails("warning")}, {out("worker:0", "2/2")}},
			"[worker:0] 2/2|…", "[worker:0] 2/2|…", "[worker:0] warning|…",
		},
		{"nothing new", [][]*clusterpb.Line{{bar("worker:0", "1")}, nil, nil}, "[worker:0] 1…", "[worker:0] 1|…", "…"},
	} {
		front := &frontEnd{}
		p := render.NewPrinter(front, nil, 0)
		for _, lines := range tt.bursts {
			p.Burst(&clusterpb.Lines{Head: lines})
		}
		blank := func(text string) string { return regexp.MustCompile(` *…$`).ReplaceAllString(text, "…") }
		if got := front.out.shown(); blank(got) != blank(tt.now) {
			t.Errorf("%s: it shows %q, not %q", tt.name, got, tt.now)
		}
		p.Close()
		if got := front.out.shown(); blank(got) != tt.end {
			t.Errorf("%s: at the end it shows %q, not %q", tt.name, got, tt.end)
		}
		if got := front.err.shown(); got != tt.errors {
			t.Errorf("%s: standard error shows %q, not %q", tt.name, got, tt.errors)
		}
	}
}

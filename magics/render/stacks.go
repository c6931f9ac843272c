package render

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
)

// StacksView shows what tasks are doing: identical stacks of threads once, with their tasks. The
// frames of the user's program are marked with >; runs of library frames are shortened, and threads
// without a frame of the program that wait are only counted, unless all.
func StacksView(run int32, snapshots []*clusterpb.Snapshot, missing []*clusterpb.MissingSnapshot, all bool) Bundle {
	b := Title(fmt.Sprintf("run %d · stacks of %s, most recent call first", run, Plural(int64(len(snapshots)), "task")))
	groups, idle := foldThreads(snapshots, all)
	for _, g := range groups {
		b = b.stack(g.lines(all))
	}
	for _, line := range slices.Concat(nativeThreads(snapshots), childProcesses(snapshots)) {
		b = b.Line(line)
	}
	if idle.count > 0 {
		b = b.Faint(fmt.Sprintf("left out: %s without frames of the program (%s); --all shows them",
			Plural(int64(idle.count), "waiting thread"), ShortList(slices.Sorted(maps.Keys(idle.names)), 4)))
	}
	var more []string
	for _, s := range snapshots {
		if s.GetThreadsLeftOut() > 0 {
			more = append(more, s.GetTask())
		}
	}
	if len(more) > 0 {
		b = b.Busy(cluster.FoldTasks(more) + " · there are more threads than a snapshot has")
	}
	for _, s := range snapshots {
		if s.GetNative() != "" {
			b = b.Details(s.GetTask()+
				" by py-spy", Line(s.GetTask()+" by py-spy:").Code(strings.Split(strings.TrimRight(s.GetNative(), "\n"), "\n")...))
		}
		if s.GetNativeError() != "" {
			b = b.Busy(fmt.Sprintf("no native frames of %s: %s", s.GetTask(), s.GetNativeError()))
		}
	}
	for _, m := range missing {
		b = b.Busy(fmt.Sprintf("nothing of %s: %s", m.GetTask(), m.GetReason()))
	}
	return b
}

// stack returns the bundle with the lines of a stack below it.
func (b Bundle) stack(lines []styled) Bundle {
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(l.Line + "\n")
	}
	return b.Append(Bundle{text.String(), markup("stack", lines)})
}

// threads are threads of one or more tasks with the same stack in the same state.
type threads struct {
	first    *clusterpb.ThreadStack
	problem  string   // why there are no better stacks
	tasks    []string // each once
	names    map[string]bool
	count    int
	channels map[string]bool
	least    float32 // use of the CPU
	most     float32
}

// idleThreads are threads that are only counted.
type idleThreads struct {
	count int
	names map[string]bool
}

// foldThreads groups the threads of all tasks: the main threads first, each group at the place of
// its first thread.
func foldThreads(snapshots []*clusterpb.Snapshot, all bool) ([]*threads, idleThreads) {
	idle := idleThreads{names: map[string]bool{}}
	groups := map[string]*threads{}
	var main, others []*threads
	for _, s := range snapshots {
		for _, t := range s.GetThreads() {
			if !t.GetMain() && len(t.GetFrames()) == 0 {
				continue // a native thread
			}
			if !all && waits(t) {
				idle.count++
				idle.names[cmp.Or(t.GetName(), "without a name")] = true
				continue
			}
			problem := ""
			if t.GetMain() {
				problem = s.GetError()
			}
			key := stackKey(t, problem)
			g := groups[key]
			if g == nil {
				g = &threads{
					first: t, problem: problem, names: map[string]bool{}, channels: map[string]bool{}, least: t.GetCpuPercent(),
				}
				groups[key] = g
				if t.GetMain() {
					main = append(main, g)
				} else {
					others = append(others, g)
				}
			}
			g.add(s.GetTask(), t)
		}
	}
	return slices.Concat(main, others), idle
}

// waits returns whether a thread waits, or its state is unknown, in code that is not the program's.
func waits(t *clusterpb.ThreadStack) bool {
	return !t.GetMain() && (t.GetState() == "S" || t.GetState() == "") &&
		!slices.ContainsFunc(t.GetFrames(), func(f *clusterpb.Frame) bool { return !f.Library() })
}

// stackKey returns a text that is equal for threads to be shown once.
func stackKey(t *clusterpb.ThreadStack, problem string) string {
	var key strings.Builder
	fmt.Fprintf(&key, "%t %s %q", t.GetMain(), t.GetState(), problem)
	for _, f := range t.GetFrames() {
		fmt.Fprintf(&key, "\n%q %q %d", f.GetFile(), f.GetFunction(), f.GetLine())
	}
	return key.String()
}

func (g *threads) add(task string, t *clusterpb.ThreadStack) {
	g.count++
	if !slices.Contains(g.tasks, task) {
		g.tasks = append(g.tasks, task)
	}
	if t.GetName() != "" {
		g.names[t.GetName()] = true
	}
	if t.GetWaitChannel() != "" {
		g.channels[t.GetWaitChannel()] = true
	}
	g.least, g.most = min(g.least, t.GetCpuPercent()), max(g.most, t.GetCpuPercent())
}

// lines returns the group's heading, and its frames in columns.
func (g *threads) lines(all bool) []styled {
	lines := []styled{{Line: g.heading(), Style: "font-weight:600"}}
	if g.problem != "" {
		lines = append(lines, styled{"    " + g.problem, ToneBusy.Style()})
	}
	rows := frameRows(g.first.GetFrames(), all)
	place, function := 0, 0
	for _, r := range rows {
		if r.function != "" {
			place, function = max(place, min(width(r.place), widest)), max(function, min(width(r.function), widest))
		}
	}
	for _, r := range rows {
		mark := " "
		if r.program {
			mark = ">"
		}
		text := fmt.Sprintf("  %s %-*s  %-*s  %s", mark, place, r.place, function, r.function, r.code)
		lines = append(lines, styled{strings.TrimRight(text, " "), r.style})
	}
	if n := g.first.GetFramesLeftOut(); n > 0 {
		lines = append(lines, styled{"    … and the frames that called it", ToneFaint.Style()})
	}
	return lines
}

// widest is how wide a column of frames becomes at most, in characters.
const widest = 48

// heading says which threads of which tasks these are, and what they do.
func (g *threads) heading() string {
	parts := []string{cluster.FoldTasks(g.tasks)}
	switch {
	case g.first.GetMain():
		parts = append(parts, "main thread")
	case g.count > len(g.tasks):
		parts = append(parts, Plural(int64(g.count), "thread")+g.namesText())
	default:
		parts = append(parts, "thread"+g.namesText())
	}
	if state := stateText(g.first.GetState(), slices.Sorted(maps.Keys(g.channels))); state != "" {
		parts = append(parts, state)
	}
	if g.first.GetState() != "" {
		cpu := fmt.Sprintf("CPU %.0f %%", g.most)
		if least := fmt.Sprintf("%.0f", g.least); least != fmt.Sprintf("%.0f", g.most) {
			cpu = fmt.Sprintf("CPU %s–%.0f %%", least, g.most)
		}
		parts = append(parts, cpu)
	}
	return strings.Join(parts, " · ")
}

func (g *threads) namesText() string {
	if len(g.names) == 0 {
		return ""
	}
	return " " + ShortList(slices.Sorted(maps.Keys(g.names)), 3)
}

// stateText says in words what a letter of /proc says, and in which kernel functions the thread
// sleeps.
func stateText(letter string, channels []string) string {
	text, known := map[string]string{
		"R": "running", "S": "sleeping", "D": "waiting for a disk, file system or device", "T": "stopped",
		"t": "stopped by a debugger", "Z": "ended",
	}[letter]
	if !known {
		text = letter
	}
	if len(channels) > 0 && (letter == "S" || letter == "D") {
		text += " in " + ShortList(channels, 2)
	}
	return text
}

// frameRow is a line of a stack.
type frameRow struct {
	place, function, code string
	style                 template.CSS
	program               bool // of the user's program
}

// libraryRun is up to how many consecutive frames of libraries are shown each.
const libraryRun = 3

// frameRows returns the lines of a stack. Of a run of library frames only the first is shown.
func frameRows(frames []*clusterpb.Frame, all bool) []frameRow {
	var rows []frameRow
	for i := 0; i < len(frames); {
		end := i
		for end < len(frames) && frames[end].Library() {
			end++
		}
		switch {
		case end == i: // the program's
			rows = append(rows, row(frames[i], all))
			end++
		case all || end-i <= libraryRun:
			for _, f := range frames[i:end] {
				rows = append(rows, row(f, all))
			}
		default:
			rest := map[string]bool{}
			for _, f := range frames[i+1 : end] {
				rest[library(f)] = true
			}
			rows = append(rows, row(frames[i], all), frameRow{
				place: fmt.Sprintf("… %d frames in %s", end-i-1, ShortList(slices.Sorted(maps.Keys(rest)), 3)),
				style: ToneFaint.Style(),
			})
		}
		i = end
	}
	return rows
}

func row(f *clusterpb.Frame, all bool) frameRow {
	if f.GetFunction() == clusterpb.CollectingGarbage {
		return frameRow{place: "(Python collects garbage)", style: ToneBusy.Style()}
	}
	file := shortPath(f)
	if all {
		file = f.GetFile()
	}
	r := frameRow{
		place: fmt.Sprintf("%s:%d", file, f.GetLine()), function: cmp.Or(f.GetFunction(), "?"),
		code: command.Shorten(f.GetCode(), 100), program: !f.Library(),
	}
	if !r.program {
		r.style = ToneFaint.Style()
	}
	return r
}

// packages are the folders below which a library's path is its name.
var packages = [...]string{"/site-packages/", "/dist-packages/"}

// shortPath returns a file's name; of a library, its path in it.
func shortPath(f *clusterpb.Frame) string {
	for _, folder := range packages {
		if _, in, ok := strings.Cut(f.GetFile(), folder); ok {
			return in
		}
	}
	// Of the standard library: …/lib/python3.12/threading.py.
	if _, in, ok := strings.Cut(f.GetFile(), "/lib/python3"); ok {
		_, in, _ = strings.Cut(in, "/")
		return in
	}
	if strings.HasPrefix(f.GetFile(), "/") {
		return path.Base(f.GetFile())
	}
	return f.GetFile()
}

// library returns the name of the library that a frame is of.
func library(f *clusterpb.Frame) string {
	for _, folder := range packages {
		if _, in, ok := strings.Cut(f.GetFile(), folder); ok {
			name, _, _ := strings.Cut(in, "/")
			return strings.TrimSuffix(name, ".py")
		}
	}
	if f.Own() {
		return "tfcluster"
	}
	return "Python"
}

// nativeThreads returns a line for each group of tasks in which threads that are not Python's run,
// or are in an uninterruptible wait (state D).
func nativeThreads(snapshots []*clusterpb.Snapshot) []string {
	return foldLines(snapshots, func(s *clusterpb.Snapshot) string {
		states := map[string]int{}
		for _, t := range s.GetThreads() {
			if !t.GetMain() && len(t.GetFrames()) == 0 && t.GetId() == 0 && t.GetState() != "" {
				channels := []string{}
				if t.GetState() == "D" && t.GetWaitChannel() != "" {
					channels = append(channels, t.GetWaitChannel())
				}
				states[stateText(t.GetState(), channels)]++
			}
		}
		var parts []string
		for _, state := range slices.Sorted(maps.Keys(states)) {
			parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
		}
		if len(parts) == 0 {
			return ""
		}
		return "native threads: " + strings.Join(parts, ", ")
	})
}

// childProcesses returns a line for each group of tasks with the same child processes.
func childProcesses(snapshots []*clusterpb.Snapshot) []string {
	return foldLines(snapshots, func(s *clusterpb.Snapshot) string {
		count := map[string]int{}
		for _, c := range s.GetChildren() {
			var channels []string
			if c.GetWaitChannel() != "" {
				channels = append(channels, c.GetWaitChannel())
			}
			count[command.Shorten(c.GetCommand(), 60)+" ("+stateText(c.GetState(), channels)+")"]++
		}
		var parts []string
		for _, what := range slices.Sorted(maps.Keys(count)) {
			if count[what] > 1 {
				what += fmt.Sprintf(" ×%d", count[what])
			}
			parts = append(parts, what)
		}
		if len(parts) == 0 {
			return ""
		}
		return "child processes: " + ShortList(parts, 4)
	})
}

// foldLines returns what describe says about tasks, once for those about which it says the same.
func foldLines(snapshots []*clusterpb.Snapshot, describe func(*clusterpb.Snapshot) string) []string {
	tasks := map[string][]string{}
	var order []string
	for _, s := range snapshots {
		line := describe(s)
		if line == "" {
			continue
		}
		if tasks[line] == nil {
			order = append(order, line)
		}
		tasks[line] = append(tasks[line], s.GetTask())
	}
	lines := make([]string, len(order))
	for i, line := range order {
		lines[i] = cluster.FoldTasks(tasks[line]) + " · " + line
	}
	return lines
}

package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
)

// RunTitle is the run in one line.
func RunTitle(st *clusterpb.RunStatus) string {
	s := fmt.Sprintf("run %d · %s · %s · %s", st.GetId(), st.GetProgram(), st.GetState(), Clock(st.GetSeconds()))
	if st.GetResumedFrom() != "" {
		s += " · resumed from " + st.GetResumedFrom()
	}
	if n := st.GetRestarts(); n > 0 {
		s += fmt.Sprintf(" · restarted %d of %d", n, st.GetMaxRestarts())
	}
	if n := st.GetLosses(); n > 0 {
		s += " · restarted for " + Plural(int64(n), "lost executor")
	}
	if st.GetDetached() {
		s += " · detached"
	}
	return s
}

func runTone(state string) Tone {
	switch state {
	case "finished":
		return ToneGood
	case "failed":
		return ToneBad
	case "running":
		return ToneNone
	default:
		return ToneBusy
	}
}

// ProgressText is "step 120 of 600 · epoch 2 of 10 · 31.4 steps/s · 00:00:15 left". The step is
// the slowest task's.
func ProgressText(st *clusterpb.RunStatus) string {
	p := st.GetProgress() // nil in a program that makes collective operations only
	var parts []string
	of := func(noun string, at, total int64) {
		switch {
		case total > 0:
			parts = append(parts, fmt.Sprintf("%s %s of %s", noun, Thousands(at), Thousands(total)))
		case at > 0:
			parts = append(parts, noun+" "+Thousands(at))
		}
	}
	pace := paceOf(st)
	of("step", pace.slowest, p.GetTotalSteps())
	if pace.last != "" {
		parts = append(parts, fmt.Sprintf("%s is %s behind", pace.last, Plural(pace.fastest-pace.slowest, "step")))
	} else if x := slower(st); x != nil && Active(st) {
		parts = append(parts, fmt.Sprintf("%s takes %.2g s for a step on its own, %s the median", x.GetTask(),
			x.GetOwnStepSeconds(), times(x.GetSlowdown())))
	}
	of("epoch", p.GetEpoch(), p.GetTotalEpochs())
	if r := st.GetStepsPerSecond(); r > 0 {
		parts = append(parts, Number(r)+" steps/s")
		if pace.last != "" && st.GetSeconds() > 0 {
			r = min(r, float64(pace.slowest)/st.GetSeconds()) // the rate is the chief's or worker 0's
		}
		if left := p.GetTotalSteps() - pace.slowest; left > 0 && st.GetState() == "running" {
			parts = append(parts, Clock(float64(left)/r)+" left")
		}
	}
	return strings.Join(parts, " · ")
}

func bar(share float64) Bundle {
	const columns = 30
	full := int(math.Round(share * columns))
	text := "[" + strings.Repeat("█", full) + strings.Repeat("·", columns-full) + "] " + fmt.Sprintf("%3.0f %%", share*100)
	return Bundle{text + "\n", markup("bar", share*100)}
}

// RunView is a run as wait keeps it before one's eyes.
func RunView(st *clusterpb.RunStatus) Bundle {
	b := Bundle{}.title(RunTitle(st), runTone(st.GetState()))
	if w := st.GetWaiting(); w != "" {
		b = b.Busy("waits for " + w)
	}
	if st.GetWantsData() {
		b = b.Busy("waiting for data: %tfcluster train DATA")
	}
	p := st.GetProgress()
	if share := Share(st); share >= 0 {
		b = b.Append(bar(share))
	}
	for _, line := range []string{ProgressText(st), metricsText(p.FiniteMetrics())} {
		if line != "" {
			b = b.Line(line)
		}
	}
	if st.GetStall() != "" {
		b = b.Busy(st.GetStall())
	}
	for i, s := range SortSeries(st.GetSeries()) {
		if line := Sparkline(s.GetValues(), 40); line != "" && i < 3 {
			b = b.Plain(fmt.Sprintf("%-12s %s", s.GetName(), line))
		}
	}
	b = b.Curves(Curves(st.GetSeries(), 3))
	if t := TaskRows(st, false); len(t.Rows) > 0 {
		b = b.Table(t)
	}
	if f := st.GetFailure(); f != nil {
		b = b.line(f.GetSummary(), ToneBad)
		if detail := FailureDetail(f); len(detail) > 0 {
			b = b.Code(detail...)
		}
	}
	return b
}

// TaskRows is a row a task. Of a run that is over only those are shown, unless all,
// that did not end well.
func TaskRows(st *clusterpb.RunStatus, all bool) Table {
	t := Table{
		Head:  []string{"task", "state", "host", "step", "memory", "cpu", "gpu", "gpu memory", "restarts", "why"},
		Right: []int{3, 4, 5, 6, 7, 8},
	}
	ended, pace := !Active(st), paceOf(st)
	const most = 24
	hidden := 0
	for _, x := range st.GetTasks() {
		bad := endedBadly(x)
		if ended && !all && (!bad || st.GetState() == "stopped") {
			continue
		}
		behind, slowdown := pace.lag(x)
		straggles := !ended && (behind > 0 || slowdown > 0)
		if len(t.Rows) >= most && !bad && !straggles {
			hidden++
			continue
		}
		row := taskRow(x, bad)
		switch {
		case !straggles:
		case behind > 0:
			row[3].Text, row[3].Tone = row[3].Text+" ("+Thousands(behind)+" behind)", ToneBusy
		default:
			row[3].Text, row[3].Tone = strings.TrimSpace(row[3].Text+" ("+times(slowdown)+" slower)"), ToneBusy
		}
		t.Rows = append(t.Rows, row)
	}
	if hidden > 0 {
		t.Rows = append(t.Rows, Row("…", fmt.Sprintf("%d more", hidden), "", "", "", "", "", "", "", ""))
	}
	return t.Drop()
}

// TaskView is how a task of a run is shown.
type TaskView struct {
	State string // in words
	Tone  Tone
	Why   string // of its end or its waiting
	// Of a straggler one of these is above 0: the steps it is behind the fastest task, or how many times as long as the
	// median it takes for a step outside of collective operations.
	Behind   int64
	Slowdown float64
}

// TaskViews returns the view of each task of a run.
func TaskViews(st *clusterpb.RunStatus) map[string]TaskView {
	views, active, pace := map[string]TaskView{}, Active(st), paceOf(st)
	for _, x := range st.GetTasks() {
		bad := endedBadly(x)
		row := taskRow(x, bad)
		v := TaskView{State: row[1].Text, Tone: row[1].Tone, Why: row[len(row)-1].Text}
		if v.Behind, v.Slowdown = pace.lag(x); !active {
			v.Behind, v.Slowdown = 0, 0
		}
		if v.Behind > 0 || v.Slowdown > 0 {
			v.Tone = ToneBusy
		}
		views[x.GetTask()] = v
	}
	return views
}

// endedBadly is whether a task's end is news: that of one which the cluster ended by a
// signal, as it does behind the training or after another's failure, is none.
func endedBadly(x *clusterpb.TaskStatus) bool {
	if x.GetReason() == "" && !x.GetEcho() && (endedAsAsked(x) || endedByUs(x) && x.GetSignal() == int32(unix.SIGKILL)) {
		return false
	}
	return x.GetSignal() > 0 || x.GetExitCode() != 0 || x.GetState() == "lost"
}

func endedByUs(x *clusterpb.TaskStatus) bool { return x.GetState() == "ended" }

// endedAsAsked is whether a task ended by the SIGTERM that the cluster sent it.
func endedAsAsked(x *clusterpb.TaskStatus) bool {
	return endedByUs(x) && (x.GetSignal() == int32(unix.SIGTERM) || x.GetExitCode() == exitTerminated)
}

func taskRow(x *clusterpb.TaskStatus, bad bool) []Cell {
	state := Cell{Text: taskState(x), Tone: ToneNone}
	if bad {
		state.Tone = ToneBad
	}
	why := x.GetReason()
	if x.GetEcho() {
		why = strings.TrimPrefix(why+"; because a peer had failed", "; ")
	}
	step, memory, cpu, gpu, gpuMemory, restarts := "", "", "", "", "", ""
	if x.GetStep() > 0 {
		step = Thousands(x.GetStep())
	}
	if u := x.GetUsage(); u.GetRssBytes() > 0 && !Over(x.GetState()) {
		memory, cpu = BytesText(u.GetRssBytes()), fmt.Sprintf("%.0f %%", u.GetCpuPercent())
		if u.GetGpuUsedBytes() > 0 || u.GetGpuPercent() > 0 {
			gpu, gpuMemory = fmt.Sprintf("%.0f %%", u.GetGpuPercent()), BytesText(u.GetGpuUsedBytes())
		}
	}
	if x.GetRestarts() > 0 {
		restarts = strconv.Itoa(int(x.GetRestarts()))
	}
	return []Cell{{Text: x.GetTask()}, state, {Text: x.GetHost()}, {
		Text: step,
	}, {Text: memory}, {Text: cpu}, {Text: gpu}, {Text: gpuMemory}, {Text: restarts}, {Text: why, Tone: ToneFaint}}
}

// exitTerminated is the exit code of a program that ends because of SIGTERM.
const exitTerminated = 128 + int32(unix.SIGTERM)

func taskState(x *clusterpb.TaskStatus) string {
	switch {
	case endedAsAsked(x):
		return x.GetState()
	case x.GetSignal() > 0:
		return fmt.Sprintf("%s by signal %d", x.GetState(), x.GetSignal())
	case Over(x.GetState()) && x.GetExitCode() < 0:
		return "lost" // nobody saw how it ended
	case Over(x.GetState()) && x.GetExitCode() != 0:
		return fmt.Sprintf("%s, code %d", x.GetState(), x.GetExitCode())
	default:
		return x.GetState()
	}
}

// Summary is what wait leaves behind: the run, and where its results are.
func Summary(st *clusterpb.RunStatus) Bundle {
	b := RunView(WithoutFailure(st))
	if r := st.GetResult().GetRepr(); r != "" && st.GetState() == "finished" {
		b = b.Faint("result " + command.Shorten(strings.ReplaceAll(r, "\n", " "), 200))
	}
	if st.GetDir() != "" {
		b = b.Faint("results: " + st.GetDir())
	}
	return b
}

// WithoutFailure is for a cell that ends with the failure as its error.
func WithoutFailure(st *clusterpb.RunStatus) *clusterpb.RunStatus {
	if st.GetFailure() == nil {
		return st
	}
	st = proto.CloneOf(st)
	st.Failure = nil
	return st
}

// HistoryView is a row a run, and a line for what the cluster was at its engine and no
// run was in.
func HistoryView(h *clusterpb.HistoryReply) Bundle {
	runs, in := h.GetRuns(), map[string]bool{}
	t := Table{Head: []string{
		"run", "program", "arguments", "state", "started", "took", "step", "metrics", "application", "failure",
	}, Right: []int{0, 6}}
	for _, r := range runs {
		started, step := "", ""
		if r.GetStartedUnix() > 0 {
			started = time.Unix(r.GetStartedUnix(), 0).Format("2006-01-02 15:04:05")
		}
		if r.GetProgress().GetStep() > 0 {
			step = Thousands(r.GetProgress().GetStep())
		}
		in[r.GetAllocation()] = true
		t.Rows = append(t.Rows, []Cell{
			{Text: strconv.Itoa(int(r.GetId()))},
			{Text: r.GetProgram()},
			{Text: command.Shorten(strings.Join(r.GetWords(), " "), 40)},
			{Text: r.GetState(), Tone: runTone(r.GetState())},
			{Text: started},
			{Text: Clock(r.GetSeconds())},
			{Text: step},
			{Text: metricsText(r.GetProgress().FiniteMetrics())},
			{Text: leaseText(r.GetAllocation(), r.GetAllocationState())},
			{Text: command.Shorten(r.GetFailure().GetSummary(), 100), Tone: ToneFaint},
		})
	}
	b := t.Drop().Bundle()
	if len(runs) == 0 {
		b = Line("no runs yet")
	}
	if n := h.GetEarlier(); n > 0 {
		b = b.Faint(fmt.Sprintf("%s of earlier clusters in the same directory: history --all", Plural(int64(n), "run")))
	}
	for _, l := range h.GetLeases() {
		if !in[l.GetId()] {
			b = b.Line(leaseText(l.GetId(), l.GetState()) + ", no run")
		}
	}
	return b
}

// leaseText is an engine's name for an allocation, and how that ended.
func leaseText(id, state string) string {
	if id == "" || state == "" {
		return id
	}
	return id + " " + command.Shorten(state, 120)
}

// Share returns how much of a run is over, from 0 to 1; -1 if that is not known.
func Share(st *clusterpb.RunStatus) float64 {
	p := st.GetProgress()
	switch {
	case st.GetState() == "finished":
		return 1
	case p.GetTotalSteps() > 0:
		return math.Min(1, float64(paceOf(st).slowest)/float64(p.GetTotalSteps()))
	case p.GetTotalEpochs() > 0 && p.GetEpoch() > 0:
		return math.Min(1, float64(p.GetEpoch()-1)/float64(p.GetTotalEpochs()))
	}
	return -1
}

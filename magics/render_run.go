package magics

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// runTitle is the run in one line.
func runTitle(st *clusterpb.RunStatus) string {
	s := fmt.Sprintf("run %d · %s · %s · %s", st.GetId(), st.GetProgram(), st.GetState(), clock(st.GetSeconds()))
	if st.GetResumedFrom() != "" {
		s += " · resumed from " + st.GetResumedFrom()
	}
	if n := st.GetRestarts(); n > 0 {
		s += fmt.Sprintf(" · restarted %d of %d", n, st.GetMaxRestarts())
	}
	if st.GetDetached() {
		s += " · detached"
	}
	return s
}

func runTone(state string) tone {
	switch state {
	case "finished":
		return toneGood
	case "failed":
		return toneBad
	case "running":
		return toneNone
	default:
		return toneBusy
	}
}

// done is how much of the run is over, from 0 to 1, or -1 where it is not known.
func done(p *clusterpb.Report) float64 {
	total, at := float64(p.GetTotalSteps()), float64(p.GetStep())
	if total > 0 {
		return math.Min(1, at/total)
	}
	if p.GetTotalEpochs() > 0 && p.GetEpoch() > 0 {
		return math.Min(1, float64(p.GetEpoch()-1)/float64(p.GetTotalEpochs()))
	}
	return -1
}

// progressText is "step 120 of 600 · epoch 2 of 10 · 31.4 steps/s · 00:00:15 left".
func progressText(st *clusterpb.RunStatus) string {
	p := st.GetProgress()
	if p == nil {
		return ""
	}
	var parts []string
	of := func(noun string, at, total int64) {
		switch {
		case total > 0:
			parts = append(parts, fmt.Sprintf("%s %s of %s", noun, thousands(at), thousands(total)))
		case at > 0:
			parts = append(parts, noun+" "+thousands(at))
		}
	}
	of("step", p.GetStep(), p.GetTotalSteps())
	of("epoch", p.GetEpoch(), p.GetTotalEpochs())
	if r := st.GetStepsPerSecond(); r > 0 {
		parts = append(parts, number(r)+" steps/s")
		if left := p.GetTotalSteps() - p.GetStep(); left > 0 && st.GetState() == "running" {
			parts = append(parts, clock(float64(left)/r)+" left")
		}
	}
	return strings.Join(parts, " · ")
}

func bar(share float64) (text, html string) {
	const columns = 30
	full := int(math.Round(share * columns))
	text = "[" + strings.Repeat("█", full) + strings.Repeat("·", columns-full) + "] " + fmt.Sprintf("%3.0f %%", share*100)
	html = fmt.Sprintf(`<div style="width:320px;max-width:100%%;height:8px;border-radius:4px;background:rgba(128,128,128,.25);margin:4px 0">`+
		`<div style="width:%.1f%%;height:8px;border-radius:4px;background:#3b82f6"></div></div>`, share*100)
	return text, html
}

// runView is a run as wait keeps it before one's eyes.
func runView(st *clusterpb.RunStatus) bundle {
	title := runTitle(st)
	b := bundle{text: title + "\n", html: `<div><b style="` + runTone(st.GetState()).style() + `">` + esc(title) + "</b></div>"}
	p := st.GetProgress()
	if share := done(p); share >= 0 {
		if st.GetState() == "finished" {
			share = 1
		}
		t, h := bar(share)
		b.text += t + "\n"
		b.html += h
	}
	for _, line := range []string{progressText(st), metricsText(finite(p.GetMetrics()))} {
		if line != "" {
			b.text += line + "\n"
			b.html += "<div>" + esc(line) + "</div>"
		}
	}
	for i, s := range sortSeries(st.GetSeries()) {
		if line := sparkline(s.GetValues(), 40); line != "" && i < 3 {
			b.text += fmt.Sprintf("%-12s %s\n", s.GetName(), line)
		}
	}
	b.html += curves(st.GetSeries(), 3)
	t := taskRows(st, false)
	if len(t.rows) > 0 {
		tb := t.bundle()
		b.text += tb.text
		b.html += tb.html
	}
	if f := st.GetFailure(); f != nil {
		fb := failureView(f)
		b.text += fb.text
		b.html += fb.html
	}
	return b
}

// taskRows is a row a task. Of a run that is over only those are shown, unless all,
// that did not end well.
func taskRows(st *clusterpb.RunStatus, all bool) table {
	t := table{head: []string{"task", "state", "host", "step", "memory", "cpu", "restarts", "why"}, right: []int{3, 4, 5, 6}}
	ended := !active(st)
	const most = 24
	hidden := 0
	for _, x := range st.GetTasks() {
		bad := endedBadly(x)
		if ended && !all && (!bad || st.GetState() == "stopped") {
			continue
		}
		if len(t.rows) >= most && !bad {
			hidden++
			continue
		}
		t.rows = append(t.rows, taskRow(x, bad))
	}
	if hidden > 0 {
		t.rows = append(t.rows, plain("…", fmt.Sprintf("%d more", hidden), "", "", "", "", "", ""))
	}
	return t.drop()
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

func taskRow(x *clusterpb.TaskStatus, bad bool) []cell {
	state := cell{text: taskState(x), tone: toneNone}
	if bad {
		state.tone = toneBad
	}
	why := x.GetReason()
	if x.GetEcho() {
		why = strings.TrimPrefix(why+"; because a peer had failed", "; ")
	}
	step, memory, cpu, restarts := "", "", "", ""
	if x.GetStep() > 0 {
		step = thousands(x.GetStep())
	}
	if x.GetRssBytes() > 0 && !over(x.GetState()) {
		memory, cpu = bytesText(x.GetRssBytes()), clock(x.GetCpuSeconds())
	}
	if x.GetRestarts() > 0 {
		restarts = strconv.Itoa(int(x.GetRestarts()))
	}
	return []cell{{text: x.GetTask()}, state, {text: x.GetHost()}, {text: step}, {text: memory}, {text: cpu}, {text: restarts}, {text: why, tone: toneFaint}}
}

// exitTerminated is the exit code of a program that ends because of SIGTERM.
const exitTerminated = 128 + int32(unix.SIGTERM)

func taskState(x *clusterpb.TaskStatus) string {
	switch {
	case endedAsAsked(x):
		return x.GetState()
	case x.GetSignal() > 0:
		return fmt.Sprintf("%s by signal %d", x.GetState(), x.GetSignal())
	case over(x.GetState()) && x.GetExitCode() < 0:
		return "lost" // nobody saw how it ended
	case over(x.GetState()) && x.GetExitCode() != 0:
		return fmt.Sprintf("%s, code %d", x.GetState(), x.GetExitCode())
	default:
		return x.GetState()
	}
}

// failureView is a failure in full.
func failureView(f *clusterpb.Failure) bundle {
	detail := failureDetail(f)
	b := bundle{text: f.GetSummary() + "\n", html: `<div style="` + toneBad.style() + `">` + esc(f.GetSummary()) + "</div>"}
	if len(detail) > 0 {
		b.text += strings.Join(detail, "\n") + "\n"
		b.html += `<pre style="margin:4px 0;white-space:pre-wrap;color:inherit;background:none">` + esc(strings.Join(detail, "\n")) + "</pre>"
	}
	return b
}

// summary is what wait leaves behind: the run, and where its results are.
func summary(st *clusterpb.RunStatus) bundle {
	b := runView(withoutFailure(st))
	var lines []string
	if r := st.GetResult().GetRepr(); r != "" && st.GetState() == "finished" {
		lines = append(lines, "result "+shorten(strings.ReplaceAll(r, "\n", " "), 200))
	}
	if st.GetDir() != "" {
		lines = append(lines, "results: "+st.GetDir())
	}
	for _, l := range lines {
		b.text += l + "\n"
		b.html += `<div style="opacity:.65">` + esc(l) + "</div>"
	}
	return b
}

// withoutFailure is for a cell that ends with the failure as its error.
func withoutFailure(st *clusterpb.RunStatus) *clusterpb.RunStatus {
	if st.GetFailure() == nil {
		return st
	}
	st = proto.CloneOf(st)
	st.Failure = nil
	return st
}

// historyView is a row a run, and a line for what the cluster was at its engine and no
// run was in.
func historyView(h *clusterpb.HistoryReply) bundle {
	runs, in := h.GetRuns(), map[string]bool{}
	t := table{head: []string{"run", "program", "words", "state", "started", "took", "step", "metrics", "application", "failure"}, right: []int{0, 6}}
	for _, r := range runs {
		started, step := "", ""
		if r.GetStartedUnix() > 0 {
			started = time.Unix(r.GetStartedUnix(), 0).Format("2006-01-02 15:04:05")
		}
		if r.GetProgress().GetStep() > 0 {
			step = thousands(r.GetProgress().GetStep())
		}
		in[r.GetAllocation()] = true
		t.rows = append(t.rows, []cell{
			{text: strconv.Itoa(int(r.GetId()))},
			{text: r.GetProgram()},
			{text: shorten(strings.Join(r.GetWords(), " "), 40)},
			{text: r.GetState(), tone: runTone(r.GetState())},
			{text: started},
			{text: clock(r.GetSeconds())},
			{text: step},
			{text: metricsText(finite(r.GetProgress().GetMetrics()))},
			{text: leaseText(r.GetAllocation(), r.GetAllocationState())},
			{text: shorten(r.GetFailure().GetSummary(), 100), tone: toneFaint},
		})
	}
	b := t.drop().bundle()
	if len(runs) == 0 {
		b = bundle{text: "no runs yet\n", html: "<div>no runs yet</div>"}
	}
	if n := h.GetEarlier(); n > 0 {
		line := fmt.Sprintf("%s of earlier clusters in the same directory: history --all", plural(int64(n), "run"))
		b.text += line + "\n"
		b.html += `<div style="opacity:.65">` + esc(line) + "</div>"
	}
	for _, l := range h.GetLeases() {
		if !in[l.GetId()] {
			line := leaseText(l.GetId(), l.GetState()) + ", no run"
			b.text += line + "\n"
			b.html += "<div>" + esc(line) + "</div>"
		}
	}
	return b
}

// leaseText is an engine's name for an allocation, and how that ended.
func leaseText(id, state string) string {
	if id == "" || state == "" {
		return id
	}
	return id + " " + shorten(state, 120)
}

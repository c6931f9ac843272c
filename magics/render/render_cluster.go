package render

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/termtext"
)

// ExecutorRows is a row an executor, in people's order.
func ExecutorRows(executors []*clusterpb.ExecutorStatus) Table {
	t := Table{Head: []string{"executor", "task", "host", "state", "gpu", "python", "why"}}
	sorted := slices.Clone(executors)
	slices.SortStableFunc(sorted, func(a, b *clusterpb.ExecutorStatus) int {
		return cluster.CompareTaskNames(a.GetTask(), b.GetTask())
	})
	const most = 40
	hidden := 0
	for _, x := range sorted {
		if len(t.Rows) >= most && x.GetState() == "ready" {
			hidden++
			continue
		}
		t.Rows = append(t.Rows, []Cell{
			{Text: x.GetId()},
			{Text: x.GetTask()},
			{Text: x.GetHost()},
			{Text: x.GetState(), Tone: executorTone(x.GetState())},
			{Text: gpuNames(x.GetGpus())},
			{Text: pythonText(x.GetPython())},
			{Text: executorCause(x), Tone: ToneFaint},
		})
	}
	if hidden > 0 {
		t.Rows = append(t.Rows, Row("…", "", "", fmt.Sprintf("%d more are ready", hidden), "", "", ""))
	}
	return t.Drop()
}

// executorCause returns how long an executor's agent has been silent, if so, and what it waits for or why it was lost.
func executorCause(x *clusterpb.ExecutorStatus) string {
	if x.GetSilentSeconds() == 0 {
		return x.GetCause()
	}
	silent := fmt.Sprintf("silent for %.0f s", x.GetSilentSeconds())
	if x.GetCause() != "" {
		silent += ": " + x.GetCause()
	}
	return silent
}

func executorTone(state string) Tone {
	switch state {
	case "ready":
		return ToneGood
	case "lost":
		return ToneBad
	default:
		return ToneBusy
	}
}

func gpuNames(gpus []*clusterpb.GPU) string {
	var parts []string
	for _, g := range gpus {
		parts = append(parts, fmt.Sprintf("%d", g.GetIndex()))
	}
	return strings.Join(parts, ",")
}

func pythonText(p *clusterpb.Python) string {
	switch {
	case p == nil:
		return ""
	case p.GetError() != "":
		return p.GetError()
	case p.GetTensorflow() == "":
		return p.GetVersion() // the cluster is for others: else it were an error
	}
	s := p.GetVersion() + ", TensorFlow " + p.GetTensorflow()
	if p.GetKeras() != "" {
		s += ", Keras " + p.GetKeras()
	}
	return s
}

// Reservation is how a reservation stands.
func Reservation(name string, roles []*clusterpb.Role, u *clusterpb.ReserveUpdate) Bundle {
	ready := countReady(u.GetExecutors())
	title := fmt.Sprintf("cluster %s: %s · %d ready · %s", name, cluster.Describe(roles), ready, Clock(u.GetSeconds()))
	b := Title(title).Table(ExecutorRows(u.GetExecutors()))
	if w := u.GetWaiting(); w != "" && !u.GetReady() {
		b = b.Busy("waiting: " + w)
	}
	return b
}

// Reserved is the one line that a complete reservation leaves behind.
func Reserved(st *clusterpb.ClusterStatus, seconds float64) Bundle {
	title := fmt.Sprintf("cluster %s: %s, ready in %.1f s", st.GetName(), cluster.Describe(st.GetRoles()), seconds)
	b := Title(title).Details("executors", ExecutorRows(st.GetExecutors()).Bundle())
	if st.GetNetwork() != "" {
		b = b.Line(st.GetNetwork())
	}
	return b.Faint("results: " + st.GetDir())
}

// ClusterView is the answer of status.
func ClusterView(st *clusterpb.ClusterStatus, say func(string) string) Bundle {
	title := fmt.Sprintf("cluster %s on %s: %s, %s", st.GetName(), st.GetBackend(), cluster.Describe(st.GetRoles()),
		StateWords(st))
	var facts []string
	if st.GetSinceUnix() > 0 {
		facts = append(facts, "since "+time.Unix(st.GetSinceUnix(), 0).Format("2006-01-02 15:04"))
	}
	driver := fmt.Sprintf("driver %d on %s", st.GetDriverPid(), st.GetHost())
	if st.GetDialed() != "" {
		driver += ", executors dial " + st.GetDialed()
	}
	facts = append(facts, driver, Plural(int64(st.GetClients()), "client"))
	switch {
	case st.GetIdleLeftMillis() > 0:
		facts = append(facts, "idle: released in "+Clock(float64(st.GetIdleLeftMillis())/1000))
	case st.GetIdleMillis() == 0:
		facts = append(facts, "never released for idleness")
	}
	if st.GetDetached() {
		facts = append(facts, "detached")
	}
	b := Title(title).Faint(strings.Join(facts, " · ")).Faint("results: " +
		st.GetDir()).Table(ExecutorRows(st.GetExecutors()))
	if w := st.GetWaiting(); w != "" {
		b = b.Busy("waiting: " + w)
	}
	for _, n := range st.GetNotes() {
		b = b.Line(noteLine(n))
	}
	switch {
	case st.GetRun() != nil:
		return b.Append(RunView(st.GetRun()))
	case st.GetRequest().GetOneRun():
		return b.Line("no run yet")
	}
	return b.Line("no run yet: " + say("start main_fun"))
}

// StateWords is a cluster's state, with the number of executors that are ready where some are not.
func StateWords(st *clusterpb.ClusterStatus) string {
	ready, all := countReady(st.GetExecutors()), len(st.GetExecutors())
	switch {
	case ready == all:
		return st.GetState()
	case st.GetState() == "ready":
		return fmt.Sprintf("%d of %d ready", ready, all)
	}
	return fmt.Sprintf("%s, %d of %d ready", st.GetState(), ready, all)
}

func countReady(executors []*clusterpb.ExecutorStatus) int {
	ready := 0
	for _, x := range executors {
		if x.GetState() == "ready" {
			ready++
		}
	}
	return ready
}

// noteLine is a note of the past in one line, with its time and run.
func noteLine(n *clusterpb.Note) string {
	var at string
	if ns := n.GetUnixNano(); ns > 0 {
		at = time.Unix(0, ns).Format(time.TimeOnly) + " "
	}
	if n.GetRun() > 0 {
		at += fmt.Sprintf("run %d ", n.GetRun())
	}
	return at + NoteText(n)
}

// NoteText is a note's text, in one line and without control characters: it may have names of files
// that a program chose.
func NoteText(n *clusterpb.Note) string {
	if n.GetWarning() {
		return "warning: " + OneLine(n.GetText())
	}
	return OneLine(n.GetText())
}

// OneLine is a text in one line and without control characters.
func OneLine(text string) string { return termtext.Visible(strings.ReplaceAll(text, "\n", " ")) }

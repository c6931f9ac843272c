package magics

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// executorRows is a row an executor, in people's order.
func executorRows(executors []*clusterpb.ExecutorStatus) table {
	t := table{head: []string{"executor", "task", "host", "state", "gpus", "python", "why"}}
	sorted := slices.Clone(executors)
	slices.SortStableFunc(sorted, func(a, b *clusterpb.ExecutorStatus) int {
		x, xerr := cluster.ParseTask(a.GetTask())
		y, yerr := cluster.ParseTask(b.GetTask())
		if xerr != nil || yerr != nil {
			return strings.Compare(a.GetTask(), b.GetTask())
		}
		return cluster.CompareTasks(x, y)
	})
	const most = 40
	hidden := 0
	for _, x := range sorted {
		if len(t.rows) >= most && x.GetState() == "ready" {
			hidden++
			continue
		}
		t.rows = append(t.rows, []cell{
			{text: x.GetId()},
			{text: x.GetTask()},
			{text: x.GetHost()},
			{text: x.GetState(), tone: executorTone(x.GetState())},
			{text: gpuNames(x.GetGpus())},
			{text: pythonText(x.GetPython())},
			{text: x.GetCause(), tone: toneFaint},
		})
	}
	if hidden > 0 {
		t.rows = append(t.rows, plain("…", "", "", fmt.Sprintf("%d more are ready", hidden), "", "", ""))
	}
	return t.drop()
}

func executorTone(state string) tone {
	switch state {
	case "ready":
		return toneGood
	case "lost":
		return toneBad
	default:
		return toneBusy
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

// reservation is how a reservation stands.
func reservation(name string, roles []*clusterpb.Role, u *clusterpb.ReserveUpdate) bundle {
	ready := 0
	for _, x := range u.GetExecutors() {
		if x.GetState() == "ready" {
			ready++
		}
	}
	title := fmt.Sprintf("cluster %s: %s · %d ready · %s", name, cluster.Describe(roles), ready, clock(u.GetSeconds()))
	b := executorRows(u.GetExecutors()).bundle()
	out := bundle{text: title + "\n" + b.text, html: "<div><b>" + esc(title) + "</b></div>" + b.html}
	if w := u.GetWaiting(); w != "" && !u.GetReady() {
		out.text += "waiting: " + w + "\n"
		out.html += `<div style="` + toneBusy.style() + `">waiting: ` + esc(w) + "</div>"
	}
	return out
}

// reserved is the one line that a complete reservation leaves behind.
func reserved(st *clusterpb.ClusterStatus, seconds float64) bundle {
	title := fmt.Sprintf("cluster %s: %s, ready in %.1f s", st.GetName(), cluster.Describe(st.GetRoles()), seconds)
	b := executorRows(st.GetExecutors()).bundle()
	dir := "results: " + st.GetDir()
	return bundle{
		text: title + "\n" + b.text + dir + "\n",
		html: `<div><b>` + esc(title) + `</b></div><details><summary style="opacity:.65;cursor:pointer">executors</summary>` + b.html + `</details><div style="opacity:.65">` + esc(dir) + `</div>`,
	}
}

// clusterView is the answer of status.
func clusterView(st *clusterpb.ClusterStatus, say func(string) string) bundle {
	title := fmt.Sprintf("cluster %s on %s: %s, %s", st.GetName(), st.GetBackend(), cluster.Describe(st.GetRoles()), st.GetState())
	var facts []string
	if st.GetSinceUnix() > 0 {
		facts = append(facts, "since "+time.Unix(st.GetSinceUnix(), 0).Format("2006-01-02 15:04"))
	}
	facts = append(facts, fmt.Sprintf("driver %d on %s", st.GetDriverPid(), st.GetHost()), plural(int64(st.GetClients()), "client"))
	switch {
	case st.GetIdleLeftMillis() > 0:
		facts = append(facts, "idle: released in "+clock(float64(st.GetIdleLeftMillis())/1000))
	case st.GetIdleMillis() == 0:
		facts = append(facts, "never released for idleness")
	}
	if st.GetDetached() {
		facts = append(facts, "detached")
	}
	b := executorRows(st.GetExecutors()).bundle()
	out := bundle{
		text: title + "\n" + strings.Join(facts, " · ") + "\nresults: " + st.GetDir() + "\n" + b.text,
		html: "<div><b>" + esc(title) + `</b></div><div style="opacity:.65">` + esc(strings.Join(facts, " · ")) + "<br>results: " + esc(st.GetDir()) + "</div>" + b.html,
	}
	for _, n := range st.GetNotes() {
		out.text += noteText(n) + "\n"
		out.html += "<div>" + esc(noteText(n)) + "</div>"
	}
	if st.GetRun() == nil {
		line := "no run yet: " + say("start main_fun")
		if st.GetRequest().GetOneRun() {
			line = "no run yet"
		}
		out.text += line + "\n"
		out.html += "<div>" + esc(line) + "</div>"
		return out
	}
	r := runView(st.GetRun())
	out.text += r.text
	out.html += r.html
	return out
}

func noteText(n *clusterpb.Note) string {
	if n.GetWarning() {
		return "warning: " + n.GetText()
	}
	return n.GetText()
}

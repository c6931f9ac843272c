package panel

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/session"
)

// State is what the panel shows. It has no secrets: no environment, token, port or address.
type State struct {
	Clusters []Listed `json:"clusters"`
	Cluster  *Cluster `json:"cluster"` // the one that is shown; null: none
	Problem  string   `json:"problem"` // why it cannot be shown
}

// Listed is a cluster of this user.
type Listed struct {
	Name    string `json:"name"`
	Backend string `json:"backend"`
	Live    bool   `json:"live"`
	Current bool   `json:"current"` // of the notebook
	Note    string `json:"note"`
}

// Cluster is the cluster that is shown.
type Cluster struct {
	Name       string     `json:"name"`
	Backend    string     `json:"backend"`
	Words      string     `json:"words"` // its state in a few words, without a duration: the page counts
	Allocation string     `json:"allocation"`
	Dir        string     `json:"dir"`
	Since      int64      `json:"since"`   // Unix time in s
	Waiting    string     `json:"waiting"` // for what a reservation or a run waits
	Notes      []Note     `json:"notes"`
	Executors  []Executor `json:"executors"`
	Hidden     int        `json:"hidden"` // executors in order that are left out
	Run        *Run       `json:"run"`
}

// Note is a note of the driver.
type Note struct {
	Text    string `json:"text"`
	Warning bool   `json:"warning"`
}

// Executor is an executor with the task of the run on it.
type Executor struct {
	Task     string   `json:"task"`
	Host     string   `json:"host"`
	State    string   `json:"state"` // of the task during a run, else of the executor
	Tone     string   `json:"tone"`  // good, bad, busy or ""
	Why      string   `json:"why"`
	Silent   float64  `json:"silent"` // seconds since the last heartbeat, if it is late
	Step     int64    `json:"step"`
	Rate     float64  `json:"rate"`     // steps per second; 0: not known
	Loss     *float64 `json:"loss"`     // the last one; null: it reports none
	Behind   int64    `json:"behind"`   // steps, of a straggler
	Slowdown float64  `json:"slowdown"` // of a straggler: the time of its step on its own, divided by the median
	Restarts int32    `json:"restarts"`
	Usage
	inOrder bool // left out first
}

// Usage is what an executor's task and GPUs use now.
type Usage struct {
	Runs   bool               `json:"runs"` // the task's process exists
	GPUs   int                `json:"gpus"`
	Values map[string]float64 `json:"usage"` // by the names in message Usage
}

// Run is the active or the last run.
type Run struct {
	ID       int32              `json:"id"`
	State    string             `json:"state"`
	Active   bool               `json:"active"`
	Program  string             `json:"program"`
	Started  int64              `json:"started"` // Unix time in s
	Seconds  float64            `json:"seconds"` // how long it took; 0 while it is active
	Progress string             `json:"progress"`
	Stall    string             `json:"stall"` // which tasks hold it up
	Share    float64            `json:"share"` // of the steps that are done, 0 to 1; -1: unknown
	Metrics  map[string]float64 `json:"metrics"`
	Failure  string             `json:"failure"` // one line
	Task     string             `json:"task"`    // that failed first
	Lines    []string           `json:"lines"`   // its last lines on standard error
}

// mostExecutors is the maximum number of executors in a message.
const mostExecutors = 200

// mostFailureLines is the maximum number of a failed task's lines in a message.
const mostFailureLines = 5

// listClusters returns the list of clusters with the session's current one marked.
func listClusters(infos []session.ClusterInfo, current string) []Listed {
	out := make([]Listed, 0, len(infos))
	for _, i := range infos {
		out = append(out,
			Listed{Name: i.Name, Backend: i.Backend, Live: i.Live || i.Hosted, Current: i.Name == current, Note: i.Note})
	}
	return out
}

// describe converts a status of the driver.
func describe(st *clusterpb.ClusterStatus) *Cluster {
	c := &Cluster{
		Name: st.GetName(), Backend: st.GetBackend(), Words: render.StateWords(st), Allocation: st.GetAllocation(),
		Dir: st.GetDir(), Since: st.GetSinceUnix(), Waiting: waiting(st), Notes: []Note{}, Run: describeRun(st.GetRun()),
	}
	for _, n := range st.GetNotes() {
		c.Notes = append(c.Notes, Note{Text: render.OneLine(n.GetText()), Warning: n.GetWarning()})
	}
	c.Executors, c.Hidden = shorten(executors(st))
	return c
}

// waiting returns what a reservation or run waits for.
func waiting(st *clusterpb.ClusterStatus) string {
	if st.GetWaiting() != "" {
		return st.GetWaiting()
	}
	if st.GetRun().GetWantsData() {
		return "for data: train, evaluate or inference"
	}
	if w := st.GetRun().GetWaiting(); w != "" {
		return "for " + w
	}
	for _, x := range st.GetExecutors() {
		if x.GetState() != "ready" && x.GetCause() != "" {
			return x.GetTask() + ": " + x.GetCause()
		}
	}
	return ""
}

func describeRun(r *clusterpb.RunStatus) *Run {
	if r == nil {
		return nil
	}
	lines := r.GetFailure().GetLines()
	out := &Run{
		ID: r.GetId(), State: r.GetState(), Active: render.Active(r), Program: r.GetProgram(), Started: r.GetStartedUnix(),
		Progress: render.ProgressText(r), Stall: r.GetStall(), Share: render.Share(r),
		Metrics: r.GetProgress().FiniteMetrics(), Failure: r.GetFailure().GetSummary(), Task: r.GetFailure().GetTask(),
	}
	out.Lines = append([]string{}, lines[max(0, len(lines)-mostFailureLines):]...)
	if !out.Active {
		out.Seconds = r.GetSeconds()
	}
	return out
}

// executors joins executors with the tasks of the run.
func executors(st *clusterpb.ClusterStatus) []Executor {
	tasks := map[string]*clusterpb.TaskStatus{}
	for _, t := range st.GetRun().GetTasks() {
		tasks[t.GetTask()] = t
	}
	views := render.TaskViews(st.GetRun())
	var out []Executor
	for _, x := range st.GetExecutors() {
		e := Executor{
			Task: x.GetTask(), Host: x.GetHost(), State: x.GetState(), Tone: "busy", Why: x.GetCause(),
			Silent: x.GetSilentSeconds(),
			Usage:  Usage{GPUs: len(x.GetGpus())},
		}
		switch x.GetState() {
		case "ready":
			e.Tone = "good"
			e.addTask(tasks[x.GetTask()], views[x.GetTask()], render.Active(st.GetRun()))
		case "lost":
			e.Tone = "bad"
		}
		usage := &clusterpb.Usage{}
		if e.Runs {
			proto.Merge(usage, tasks[x.GetTask()].GetUsage())
		}
		if e.GPUs > 0 {
			usage.GpuPercent, usage.GpuUsedBytes = &x.GpuPercent, &x.GpuUsedBytes
		}
		e.Values = usage.Values()
		if e.Silent > 0 && e.Tone != "bad" {
			e.Tone = "busy"
		}
		e.inOrder = e.Tone == "good"
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Executor) int { return cluster.CompareTaskNames(a.Task, b.Task) })
	return out
}

// addTask adds the run's task. Of a run that is over only a bad end is shown, and not that an
// executor was lost: this one, perhaps another, is ready for the next run.
func (e *Executor) addTask(t *clusterpb.TaskStatus, v render.TaskView, active bool) {
	if t == nil || !active && (v.Tone != render.ToneBad || v.State == "lost") {
		return
	}
	e.State, e.Why = v.State, cmp.Or(v.Why, e.Why)
	e.Step, e.Behind, e.Slowdown, e.Restarts = t.GetStep(), v.Behind, v.Slowdown, t.GetRestarts()
	e.Rate, e.Loss = t.GetStepsPerSecond(), t.Loss
	switch v.Tone {
	case render.ToneBad:
		e.Tone = "bad"
	case render.ToneBusy:
		e.Tone = "busy"
	}
	e.Runs = active && !render.Over(t.GetState())
}

// shorten leaves out executors in order if there are too many.
func shorten(all []Executor) (shown []Executor, hidden int) {
	shown = make([]Executor, 0, min(len(all), mostExecutors))
	room := mostExecutors // for executors in order
	for _, e := range all {
		if !e.inOrder {
			room--
		}
	}
	for _, e := range all {
		if len(shown) == mostExecutors || e.inOrder && room <= 0 {
			continue
		}
		if e.inOrder {
			room--
		}
		shown = append(shown, e)
	}
	return shown, len(all) - len(shown)
}

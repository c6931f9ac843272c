package panel

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/session"
)

// on calls do with the cluster that a request names.
func (c *comm) on(ctx context.Context, m message, do func(context.Context, *session.Handle) error) error {
	ctx, cancel := context.WithTimeout(ctx, session.AnswerTimeout)
	defer cancel()
	h, release, err := c.Session.Look(ctx, m.Cluster)
	if err != nil {
		return err
	}
	defer release()
	return do(ctx, h)
}

// tensorboard answers where the TensorBoard of a cell's output is.
func (c *comm) tensorboard(ctx context.Context, m message) (reply, error) {
	path, logdir, err := c.Session.FindBoard(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	r := reply{"id": m.ID, "path": path, "logdir": logdir}
	if curves := c.Session.BoardCurves(ctx, m.ID); len(curves) > 0 {
		r["curves"] = curves
	}
	return r, nil
}

// board opens a cluster's TensorBoard.
func (c *comm) board(ctx context.Context, m message) (r reply, err error) {
	err = c.on(ctx, m, func(ctx context.Context, h *session.Handle) error {
		path, err := h.OpenBoard(ctx)
		r = reply{"path": path}
		return err
	})
	return r, err
}

// linesPath answers the path of a cluster's lines by HTTP and WebSocket.
func (c *comm) linesPath(ctx context.Context, m message) (reply, error) {
	path, err := c.Session.LinesPath(ctx, m.Cluster)
	return reply{"path": path}, err
}

// PastRun is a run in a list of runs.
type PastRun struct {
	Run
	Series []Curve `json:"series"`
}

// Curve is a metric of a run by step.
type Curve struct {
	Name   string    `json:"name"`
	Steps  []int64   `json:"steps"`
	Values []float64 `json:"values"`
}

// runs answers the cluster's runs, the newest first.
func (c *comm) runs(ctx context.Context, m message) (reply, error) {
	runs, err := c.history(ctx, m, nil)
	return reply{"runs": runs}, err
}

// curves answers the metrics of chosen runs.
func (c *comm) curves(ctx context.Context, m message) (reply, error) {
	if len(m.Runs) == 0 {
		return nil, errtext.Fault("the panel asked for curves of no run")
	}
	runs, err := c.history(ctx, m, m.Runs)
	return reply{"runs": runs}, err
}

// mostRuns is the maximum number of runs in a message.
const mostRuns = 200

// history returns runs: all without their curves, or the chosen ones with them.
func (c *comm) history(ctx context.Context, m message, chosen []int32) (runs []PastRun, err error) {
	runs = []PastRun{}
	err = c.on(ctx, m, func(ctx context.Context, h *session.Handle) error {
		all, err := h.History(ctx, true)
		if err != nil {
			return err
		}
		for _, r := range slices.Backward(all) {
			if chosen != nil && !slices.Contains(chosen, r.GetId()) || len(runs) == mostRuns {
				continue
			}
			p := PastRun{Run: *describeRun(r), Series: []Curve{}}
			if chosen != nil {
				p.Series = curvesOf(r)
			}
			runs = append(runs, p)
		}
		return nil
	})
	return runs, err
}

// curvesOf returns the finite points of a run's metrics: JSON has no others.
func curvesOf(r *clusterpb.RunStatus) []Curve {
	curves := []Curve{}
	for _, s := range render.SortSeries(r.GetSeries()) {
		steps, values := render.Points(s)
		curves = append(curves, Curve{Name: s.GetName(), Steps: steps, Values: values})
	}
	return curves
}

// Samples is what a task has used.
type Samples struct {
	Task  string               `json:"task"`
	Times []int64              `json:"times"` // Unix time in ms
	Usage map[string][]float64 `json:"usage"` // by the names in message Usage: as many as times
}

// samplesOf converts a task's samples. A value that no sample has is left out, another is 0 where a sample lacks it.
func samplesOf(t *clusterpb.TaskSamples) Samples {
	s := Samples{Task: t.GetTask(), Times: t.GetUnixMillis(), Usage: map[string][]float64{}}
	for i, u := range t.GetUsage() {
		for name, v := range u.Values() {
			if s.Usage[name] == nil {
				s.Usage[name] = make([]float64, len(t.GetUsage()))
			}
			s.Usage[name][i] = math.Round(v*1000) / 1000
		}
	}
	return s
}

// samples answers what tasks have used since a time.
func (c *comm) samples(ctx context.Context, m message) (reply, error) {
	var after int64
	if len(m.After) > 0 {
		if err := json.Unmarshal(m.After, &after); err != nil {
			return nil, errtext.Fault("the panel sent %.40q, which is no time in milliseconds", m.After)
		}
	}
	tasks := []Samples{}
	err := c.on(ctx, m, func(ctx context.Context, h *session.Handle) error {
		r, err := h.Client.Samples(ctx, &clusterpb.SamplesRequest{Task: m.Task, AfterUnixMillis: after})
		if err != nil {
			return h.Explain(err)
		}
		for _, t := range r.GetTasks() {
			tasks = append(tasks, samplesOf(t))
		}
		slices.SortStableFunc(tasks, func(a, b Samples) int { return cluster.CompareTaskNames(a.Task, b.Task) })
		return nil
	})
	return reply{"tasks": tasks}, err
}

// words returns the words of a verb that the panel may run; nil for another one. The panel has
// asked before it forces the end of an active run.
func (m message) words() []string {
	if !slices.Contains([]string{"stop", "reset", "attach", "shutdown"}, m.Verb) {
		return nil
	}
	words := []string{m.Verb, "-c", m.Cluster}
	if m.Verb == "shutdown" && m.Force {
		words = append(words, "--force")
	}
	return words
}

// act runs a verb on a cluster beside what the notebook runs. The verb runs to its end even if
// the page is closed. A cluster that is not the session's does not become its current one,
// unless it is attached.
func (c *comm) act(_ context.Context, m message) (reply, error) {
	words := m.words()
	if words == nil {
		return nil, fmt.Errorf("the panel cannot run %q: run it in a cell", m.Verb)
	}
	if m.Cluster == "" {
		return nil, errtext.Fault("the panel named no cluster")
	}
	ctx, on := c.Session.Context(), c.Session
	if m.Verb != "attach" && on.Find(m.Cluster) == nil {
		opt := on.Options
		opt.Owner = ""
		on = session.NewState(ctx, opt)
		defer on.Close()
	}
	var out transcript
	_, err := c.Act(ctx, on, words, &out, c.Python)
	return reply{"text": out.text()}, err
}

// transcript is an Output that keeps the text.
type transcript struct {
	streamed strings.Builder
	shown    map[string]string // by display
	order    []string
}

// Stdout implements render.Output.
func (t *transcript) Stdout(text string) { t.streamed.WriteString(text) }

// Stderr implements render.Output.
func (t *transcript) Stderr(text string) { t.streamed.WriteString(text) }

// Display implements render.Output.
func (t *transcript) Display(id string, data, _ map[string]any) {
	text, _ := data["text/plain"].(string)
	if t.shown == nil {
		t.shown = map[string]string{}
	}
	if _, known := t.shown[id]; !known {
		t.order = append(t.order, id)
	}
	t.shown[id] = text
}

// Update implements render.Output.
func (t *transcript) Update(id string, data, metadata map[string]any) { t.Display(id, data, metadata) }

// Interrupts implements render.Output.
func (t *transcript) Interrupts() <-chan struct{} { return nil }

// text returns what was shown, streams first.
func (t *transcript) text() string {
	b := &t.streamed
	for _, id := range t.order {
		_, _ = io.WriteString(b, "\n"+t.shown[id])
	}
	return strings.TrimSpace(b.String())
}

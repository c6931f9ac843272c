package render

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestStragglers: the bar and the time left follow the slowest task that still runs; a task
// that is behind by more than reports are late is marked.
func TestStragglers(t *testing.T) {
	t.Parallel()
	task := func(name, state string, step int64) *clusterpb.TaskStatus {
		return &clusterpb.TaskStatus{
			Task: name, State: state, Step: step, Usage: &clusterpb.Usage{RssBytes: 1 << 20, CpuPercent: 97.6},
		}
	}
	slow := task("worker:1", "running", 12)
	slow.OwnStepSeconds, slow.Slowdown = 0.42, 3.2
	for _, tt := range []struct {
		name      string
		state     string
		rate      float64
		tasks     []*clusterpb.TaskStatus
		has, lack []string
	}{
		{
			"the first is done, the second is not", "running", 1,
			[]*clusterpb.TaskStatus{task("worker:0", "exited", 12), task("worker:1", "running", 7)},
			[]string{" 58 %", "step 7 of 12", "worker:1 is 5 steps behind", "00:00:10 left", "7 (5 behind)", "98 %"},
			[]string{"100 %", "12 ("},
		},
		{
			"reports are late by less than a second's steps", "running", 30,
			[]*clusterpb.TaskStatus{task("worker:0", "running", 12), task("worker:1", "running", 7)},
			[]string{"step 12 of 12"},
			[]string{"behind"},
		},
		{
			"a parameter server and an evaluator report other steps", "running", 1,
			[]*clusterpb.TaskStatus{
				task("worker:0", "running", 12), task("evaluator:0", "running", 3), task("ps:0", "running", 1),
				task("worker:1", "running", 0),
			},
			[]string{"step 12 of 12"},
			[]string{"behind"},
		},
		{
			"the first worker is the slow one", "running", 1,
			[]*clusterpb.TaskStatus{task("worker:0", "running", 12), task("worker:1", "running", 17)},
			[]string{"step 12 of 12", "worker:0 is 5 steps behind", "12 (5 behind)"},
			nil,
		},
		{
			"collective operations keep all at one step", "running", 1,
			[]*clusterpb.TaskStatus{task("worker:0", "running", 12), slow},
			[]string{"step 12 of 12", "worker:1 takes 0.42 s for a step on its own, 3.2× the median", "12 (3.2× slower)"},
			[]string{"behind"},
		},
		{
			"the use of GPUs", "running", 0,
			[]*clusterpb.TaskStatus{
				{Task: "worker:0", State: "running", Usage: &clusterpb.Usage{
					RssBytes: 1 << 20, GpuPercent: new(float32(96.7)), GpuUsedBytes: new(uint64(5 << 30)),
				}},
				{Task: "worker:1", State: "exited", Usage: &clusterpb.Usage{
					RssBytes: 1, GpuPercent: new(float32(71)), GpuUsedBytes: new(uint64(1)),
				}},
			},
			[]string{" gpu ", "gpu memory", "  97 %     5.0 GiB"},
			[]string{"71 %"},
		},
		{
			"the tasks report no steps", "running", 0,
			[]*clusterpb.TaskStatus{
				task("worker:0", "running", 0), {Task: "worker:1", State: "running", OwnStepSeconds: 0.42, Slowdown: 3.2},
			},
			[]string{"worker:1 takes 0.42 s for a step on its own, 3.2× the median", "(3.2× slower)"},
			[]string{"behind", " (3.2×  "},
		},
		{
			"it is over", "finished", 1,
			[]*clusterpb.TaskStatus{task("worker:0", "exited", 12), task("worker:1", "exited", 7)},
			[]string{"100 %", "step 12 of 12"},
			[]string{"behind"},
		},
	} {
		b := RunView(&clusterpb.RunStatus{
			Id: 1, State: tt.state, StepsPerSecond: tt.rate, Seconds: 14, Progress: &clusterpb.Report{Step: 12, TotalSteps: 12},
			Tasks: tt.tasks,
		})
		for _, want := range tt.has {
			if !strings.Contains(b.Text, want) ||
				!strings.Contains(b.HTML(), strings.TrimSpace(want)) && !strings.Contains(want, "%") {
				t.Errorf("%s: no %q in\n%s", tt.name, want, b.Text)
			}
		}
		for _, not := range tt.lack {
			if strings.Contains(b.Text, not) {
				t.Errorf("%s: %q in\n%s", tt.name, not, b.Text)
			}
		}
	}
}

// TestStall: one line below the progress says what holds a run up, as text and HTML.
func TestStall(t *testing.T) {
	t.Parallel()
	const line = "worker:1 is 41 s behind: in <lambda> (mnist.py:33)"
	b := RunView(
		&clusterpb.RunStatus{Id: 1, State: "running", Progress: &clusterpb.Report{Step: 6, TotalSteps: 12}, Stall: line})
	bar, below := strings.Index(b.Text, "50 %"), strings.Index(b.Text, line+"\n")
	if bar < 0 || below < bar || strings.Count(b.Text, "behind") != 1 {
		t.Errorf("shown as\n%s", b.Text)
	}
	if html := b.HTML(); !strings.Contains(html, "in &lt;lambda&gt; (mnist.py:33)") || strings.Contains(html, "<lambda>") {
		t.Errorf("shown as\n%s", html)
	}
}

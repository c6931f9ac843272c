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
		return &clusterpb.TaskStatus{Task: name, State: state, Step: step, RssBytes: 1 << 20, CpuPercent: 97.6}
	}
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
			[]*clusterpb.TaskStatus{task("worker:0", "running", 12), task("evaluator:0", "running", 3), task("ps:0", "running", 1), task("worker:1", "running", 0)},
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
			"it is over", "finished", 1,
			[]*clusterpb.TaskStatus{task("worker:0", "exited", 12), task("worker:1", "exited", 7)},
			[]string{"100 %", "step 12 of 12"},
			[]string{"behind"},
		},
	} {
		b := RunView(&clusterpb.RunStatus{Id: 1, State: tt.state, StepsPerSecond: tt.rate, Seconds: 14, Progress: &clusterpb.Report{Step: 12, TotalSteps: 12}, Tasks: tt.tasks})
		for _, want := range tt.has {
			if !strings.Contains(b.Text, want) || !strings.Contains(b.HTML(), strings.TrimSpace(want)) && !strings.Contains(want, "%") {
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

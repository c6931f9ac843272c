package magics

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// whyReply is the verdict of a run that hangs.
func whyReply() *clusterpb.WhyReply {
	doing := func(task, class, where, detail string, cpu float64) *clusterpb.TaskFinding {
		return &clusterpb.TaskFinding{
			Task: task, Step: 116, StepAgeSeconds: 41, State: "running", Class: class, Where: where, Detail: detail,
			CpuPercent: cpu, Host: "host0",
		}
	}
	return &clusterpb.WhyReply{
		Run: 1, Culprits: []string{"worker:1"}, Certain: true,
		Text: "worker:1 is 41 s behind: in load_batch (mnist.py:33), CPU 2 %, waiting for a file; 0, " +
			"2 wait for it in the all-reduce of step 117",
		Tasks: []*clusterpb.TaskFinding{
			doing("worker:0", "collective", "main_fun (mnist.py:60)", "", 1), doing("worker:1", "io", "load_batch (mnist.py:33)",
				"waiting for a file", 2), doing("worker:2", "collective", "main_fun (mnist.py:60)", "", 0),
			{Task: "ps:0", State: "running", Class: "unknown", Host: "host1"},
		},
	}
}

// stalledUpdates is a run that makes steps, hangs, and goes on; one of its tasks is a straggler.
func stalledUpdates() []*clusterpb.RunUpdate {
	status := func(step int64, stall string, slowdown float64) *clusterpb.RunUpdate {
		task := func(name string, own, slowdown float64) *clusterpb.TaskStatus {
			return &clusterpb.TaskStatus{
				Task: name, State: "running", Host: "host0", Step: step, OwnStepSeconds: own, Slowdown: slowdown,
			}
		}
		return &clusterpb.RunUpdate{Status: &clusterpb.RunStatus{
			Id: 1, State: "running", Program: "main_fun", Progress: &clusterpb.Report{Step: step, TotalSteps: 600}, Stall: stall,
			Tasks: []*clusterpb.TaskStatus{task("worker:0", 0.1, 0), task("worker:1", 0.31, slowdown)},
		}}
	}
	last := status(600, "", 0)
	last.Final, last.Status.State = true, "finished"
	return []*clusterpb.RunUpdate{status(116, whyReply().GetText(), 0), status(300, "", 3.1), last}
}

// TestWhyJSON: the shape of why --json, which programs read.
func TestWhyJSON(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reply *clusterpb.WhyReply
		want  string
	}{
		"a run that hangs": {
			whyReply(),
			`{"run": 1, "culprits": ["worker:1"], "certain": true,
			"text": "worker:1 is 41 s behind: in load_batch (mnist.py:33), CPU 2 %, waiting for a file; ` +
				`0, 2 wait for it in the all-reduce of step 117", "tasks": [
			{"task": "worker:0", "step": 116, "step_age_seconds": 41, "state": "running", "class": "collective",
			"where": "main_fun (mnist.py:60)", "cpu_percent": 1},
			{"task": "worker:1", "step": 116, "step_age_seconds": 41, "state": "running", "class": "io",
			"where": "load_batch (mnist.py:33)", "cpu_percent": 2},
			{"task": "worker:2", "step": 116, "step_age_seconds": 41, "state": "running", "class": "collective",
			"where": "main_fun (mnist.py:60)", "cpu_percent": 0},
			{"task": "ps:0", "step": 0, "step_age_seconds": 0, "state": "running", "class": "unknown",
			"where": "", "cpu_percent": 0}]}`,
		},
		"no run": {
			&clusterpb.WhyReply{Text: "no run has been started"},
			`{"run": 0, "culprits": [], "certain": false, "text": "no run has been started", "tasks": []}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := stacksSession(t, func(f *fakeCluster) { f.why = tt.reply })
			out := newRecord()
			if _, err := runCode(t.Context(), s, "%tfcluster why --json", out, &fakePython{}); err != nil {
				t.Fatal(err)
			}
			var got, want any
			text := strings.ReplaceAll(out.settle(), "out| ", "")
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %s", text)
			}
		})
	}
}

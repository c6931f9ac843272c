package panel

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/session"
)

var writeExamples = flag.Bool("update", false, "write jupyter-ext/testdata/panel.json")

// examples are messages of each type, which the extension's tests read, too.
func examples() map[string]any {
	running := &clusterpb.RunStatus{
		Id: 3, State: "running", Program: "main_fun", StartedUnix: 1_760_000_000, StepsPerSecond: 4,
		Progress: &clusterpb.Report{Step: 120, TotalSteps: 600, Metrics: map[string]float64{"loss": 0.25}},
		Stall:    "worker:1 is 41 s behind: in load_batch (mnist.py:33)",
		Tasks: []*clusterpb.TaskStatus{
			{
				Task: "worker:0", State: "running", Host: "a", Step: 120, StepsPerSecond: 4, Loss: new(0.25),
				Usage: &clusterpb.Usage{RssBytes: 1 << 30, CpuPercent: 98.5}, Pid: 7, OwnStepSeconds: 0.4, Slowdown: 3.2,
			},
			{
				Task: "worker:1", State: "running", Host: "b", Step: 90, StepsPerSecond: 3,
				Usage: &clusterpb.Usage{RssBytes: 2 << 30, CpuPercent: 3}, Restarts: 1, Pid: 8,
			},
		},
	}
	failed := &clusterpb.RunStatus{
		Id: 2, State: "failed", Program: "train.py", StartedUnix: 1_759_990_000, Seconds: 61,
		Failure: &clusterpb.Failure{
			Summary: "worker:1 on b exited with code 1: ValueError: <b>no</b>", Task: "worker:1",
			Lines: []string{"Traceback …", "ValueError: <b>no</b>"},
		},
		Tasks: []*clusterpb.TaskStatus{
			{Task: "worker:0", State: "ended", Signal: 15}, {Task: "worker:1", State: "exited", ExitCode: 1},
		},
		Series: []*clusterpb.Series{{Name: "loss", Steps: []int64{1, 2}, Values: []float64{1, 0.5}}},
	}
	executors := []*clusterpb.ExecutorStatus{
		{Id: "1", Task: "worker:1", State: "ready", Host: "b", SilentSeconds: 7.5},
		{
			Id: "0", Task: "worker:0", State: "ready", Host: "a", Gpus: []*clusterpb.GPU{{Index: 0}}, GpuPercent: 87,
			GpuUsedBytes: 3 << 30,
		},
	}
	status := func(run *clusterpb.RunStatus) *clusterpb.ClusterStatus {
		return &clusterpb.ClusterStatus{
			Name: "brave-otter", Backend: "yarn", State: "ready", Allocation: "application_1760000000000_0001",
			Dir: "hdfs:///user/ana/runs", SinceUnix: 1_759_980_000, Executors: executors, Run: run,
			Notes:   []*clusterpb.Note{{Text: "2 tasks run\non b", Warning: true}},
			Request: &clusterpb.ReserveRequest{Env: map[string]string{"TOKEN": "hunter2"}},
		}
	}
	list := listClusters([]session.ClusterInfo{
		{Name: "old", Backend: "local", Note: "its driver died"}, {Name: "brave-otter", Backend: "yarn", Live: true},
	}, "brave-otter")
	waiting := status(nil)
	waiting.Executors = []*clusterpb.ExecutorStatus{
		{Id: "0", Task: "worker:0", State: "pending", Cause: "waiting for YARN: queue default is full"},
	}
	return map[string]any{
		"none":        State{Clusters: []Listed{}},
		"reservation": State{Clusters: list, Cluster: describe(waiting)},
		"training":    State{Clusters: list, Cluster: describe(status(running))},
		"failed":      State{Clusters: list, Cluster: describe(status(failed))},
		"dead":        State{Clusters: list[:1], Problem: "the driver of old died"},
		"runs": reply{
			"type": "curves", "request": 1, "runs": []PastRun{{Run: *describeRun(failed), Series: curvesOf(failed)}},
		},
		"lines": reply{"type": "lines", "request": 2, "run": 3, "skipped": 5, "gap": "", "lines": convert([]*clusterpb.Line{
			{Task: "worker:0", Seq: 41, Text: "step <b>1</b>", UnixNano: 1_760_000_000_123_000_000},
			{Task: "worker:1", Seq: 7, Text: "warning", Stream: clusterpb.Line_STDERR, UnixNano: 1_760_000_000_124_000_000},
		})},
		"samples": reply{"type": "samples", "request": 3, "tasks": []Samples{samplesOf(&clusterpb.TaskSamples{
			Task: "worker:0", UnixMillis: []int64{1_760_000_000_000, 1_760_000_002_000},
			Usage: []*clusterpb.Usage{{RssBytes: 1 << 30}, {RssBytes: 1 << 30, CpuPercent: 95.12345}},
		})}},
	}
}

// TestExamples compares the messages with the file that the extension's tests read.
func TestExamples(t *testing.T) {
	t.Parallel()
	const file = "../../jupyter-ext/testdata/panel.json"
	got, err := json.MarshalIndent(examples(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if bytes.Contains(got, []byte("hunter2")) {
		t.Error("a message has a value of the environment")
	}
	if *writeExamples {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("messages differ from %s; go test ./magics/panel -update writes it:\n%s", file, got)
	}
}

// TestShorten: of thousands of executors those are shown that are not in order.
func TestShorten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ all, lost, shown, hidden int }{
		{3, 1, 3, 0}, {mostExecutors, 0, mostExecutors, 0}, {5000, 7, mostExecutors, 4800}, {5000, 4000, mostExecutors, 4800},
	} {
		st := &clusterpb.ClusterStatus{}
		for i := range tt.all {
			x := &clusterpb.ExecutorStatus{Task: fmt.Sprintf("worker:%d", i), State: "ready"}
			if i >= tt.all-tt.lost {
				x.State = "lost"
			}
			st.Executors = append(st.Executors, x)
		}
		c := describe(st)
		lost := 0
		for _, e := range c.Executors {
			if e.Tone == "bad" {
				lost++
			}
		}
		if len(c.Executors) != tt.shown || c.Hidden != tt.hidden || lost != min(tt.lost, mostExecutors) {
			t.Errorf("%d executors, %d lost: %d shown, %d hidden, %d lost shown", tt.all, tt.lost, len(c.Executors),
				c.Hidden, lost)
		}
	}
}

// TestTasksOfPastRuns: of a run that is over the executors show which tasks failed, and are ready again.
func TestTasksOfPastRuns(t *testing.T) {
	t.Parallel()
	run := &clusterpb.RunStatus{Id: 1, State: "failed", Tasks: []*clusterpb.TaskStatus{
		{Task: "worker:0", State: "ended", Signal: 15}, {Task: "worker:1", State: "exited", ExitCode: 1}, {
			Task: "worker:2", State: "exited", ExitCode: -1, Reason: "executor lost",
		},
	}}
	st := &clusterpb.ClusterStatus{Run: run}
	for i := range 3 {
		st.Executors = append(st.Executors, &clusterpb.ExecutorStatus{Task: fmt.Sprintf("worker:%d", i), State: "ready"})
	}
	shown := func() (all []string) {
		for _, e := range describe(st).Executors {
			all = append(all, e.State+" "+e.Tone)
		}
		return all
	}
	if got, want := shown(), []string{"ready good", "exited, code 1 bad", "ready good"}; !slices.Equal(got, want) {
		t.Errorf("after the run: %q, want %q", got, want)
	}
	run.State = "running"
	run.Tasks[0].State, run.Tasks[0].Signal = "running", 0
	if got, want := shown(), []string{"running good", "exited, code 1 bad", "lost bad"}; !slices.Equal(got, want) {
		t.Errorf("during the run: %q, want %q", got, want)
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	all := []Listed{
		{Name: "dead"}, {Name: "old", Live: true}, {Name: "mine", Live: true, Current: true}, {Name: "new", Live: true},
	}
	for _, tt := range []struct {
		name string
		all  []Listed
		want string
	}{{"", all, "mine"}, {"dead", all, "dead"}, {"", all[:2], "old"}, {"gone", all[:2], "old"}, {"", all[:1], ""}, {
		"", nil, "",
	}} {
		if got := pick(tt.name, tt.all); got != tt.want {
			t.Errorf("pick(%q, %v) is %q, want %q", tt.name, tt.all, got, tt.want)
		}
	}
}

func TestPattern(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "a.b": `(?i)a\.b`, "Error (x": `Error \(x`} {
		if got := pattern(text); got != want {
			t.Errorf("pattern(%q) is %q, want %q", text, got, want)
		}
	}
}

// FuzzMessage: no message makes the kernel panic or wait.
func FuzzMessage(f *testing.F) {
	for _, m := range []string{
		`{"type":"show"}`, `{"type":"page","after":{"a":1}}`, `{"type":"samples","after":"x"}`, `[]`,
		`{"type":"act","verb":"rm"}`,
	} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m message
		if json.Unmarshal(raw, &m) != nil {
			return
		}
		if req, err := m.request(); err == nil && (req.GetLast() < 1 || req.GetLast() > mostLines) {
			t.Errorf("%s asks for %d lines", raw, req.GetLast())
		}
	})
}

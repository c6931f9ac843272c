package magics

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var update = flag.Bool("update", false, "write the transcripts in testdata anew")

// scenes are the clusters that the transcripts in testdata meet, by file.
var scenes = map[string]func(*fakeCluster){
	"quickstart": func(f *fakeCluster) { f.follow = trainingUpdates() },
	"failure": func(f *fakeCluster) {
		failure := &clusterpb.Failure{
			Summary: "worker:1 on host1 failed: ValueError: bad batch", Task: "worker:1", Host: "host1", ExitCode: 1,
			Kind: "task", Exception: "ValueError: bad batch",
			Lines: []string{"Traceback (most recent call last):", `  File "train.py", line 6, in main_fun`, "ValueError: " +
				"bad batch"}, Echoes: []string{"worker:0", "worker:2"},
			Remedy: "fix the program and run %tfcluster start again: the executors stay reserved",
		}
		st := &clusterpb.RunStatus{
			Id: 1, State: "failed", Program: "main_fun", Seconds: 75, Failure: failure,
			Dir: "/work/dir/tfcluster-runs/local-1/run-001",
			Tasks: []*clusterpb.TaskStatus{
				{Task: "ps:0", State: "ended", Host: "host2", Signal: int32(unix.SIGKILL)},
				{Task: "worker:0", State: "exited", Host: "host0", ExitCode: 1, Echo: true, Reason: "UnavailableError"},
				{Task: "worker:2", State: "ended", Host: "host2", ExitCode: 1},
				{Task: "worker:1", State: "exited", Host: "host1", ExitCode: 1, Step: 30},
			},
		}
		f.follow = []*clusterpb.RunUpdate{
			{Lines: &clusterpb.Lines{
				Head: []*clusterpb.Line{{Stream: clusterpb.Line_STDERR, Task: "worker:1", Text: "ValueError: bad batch"}},
			}},
			{Status: st, Final: true},
		}
	},
	"reserve": func(f *fakeCluster) {
		roles := f.request.GetRoles()
		f.reserve = []*clusterpb.ReserveUpdate{{
			Executors: executors(roles, "granted"), Waiting: "missing worker:1 on host1: its agent has not called yet",
			Seconds: 0.3,
		}}
		if f.request.GetName() == "late" {
			f.reserve = append(f.reserve,
				&clusterpb.ReserveUpdate{Executors: executors(roles, "granted"), Failure: &clusterpb.Failure{
					Kind: "timeout", Summary: "1 of 2 executors came within 10s; missing worker:1: queue default is full",
					Remedy: "reserve fewer workers, or wait with --reserve-timeout 30m",
				}})
		}
	},
	"usage": nil,
	"why": func(f *fakeCluster) {
		f.follow, f.why = stalledUpdates(), whyReply()
	},
	"stacks": func(f *fakeCluster) {
		f.follow, f.stacks = trainingUpdates(), stacksReplies()
	},
	"look": func(f *fakeCluster) {
		f.follow = trainingUpdates()
		f.lines = []*clusterpb.Line{{
			Task: "worker:0",
			Text: "epoch 1",
		}, {Task: "worker:0-3 ×4", Text: "ready"}, {Stream: clusterpb.Line_STDERR, Task: "worker:1", Text: "careful"}}
	},
}

func trainingUpdates() []*clusterpb.RunUpdate {
	status := func(state string, step int64) *clusterpb.RunStatus {
		ps := &clusterpb.TaskStatus{Task: "ps:0", State: state, Host: "host2"}
		if state == "finished" {
			ps.State, ps.ExitCode = "ended", 128+int32(unix.SIGTERM)
		}
		return &clusterpb.RunStatus{
			Id: 1, State: state, Program: "main_fun", Seconds: float64(step), Dir: "/work/dir/tfcluster-runs/local-1/run-001",
			LogDir: "/work/dir/tfcluster-runs/local-1/run-001/logs",
			Progress: &clusterpb.Report{Step: step, TotalSteps: 600, Epoch: 1 +
				step/300, TotalEpochs: 2, Metrics: map[string]float64{"loss": 0.312, "accuracy": 0.9121, "lr": 0.001}},
			Series: []*clusterpb.Series{{Name: "loss", Steps: []int64{1, 300, 600}, Values: []float64{2.3, 0.7, 0.312}}, {
				Name:   "accuracy",
				Steps:  []int64{1, 300, 600},
				Values: []float64{0.1, 0.8, 0.9121},
			}}, StepsPerSecond: 31.4, Result: &clusterpb.TaskResult{Json: `{"accuracy":0.9121}`, Repr: "{'accuracy': 0.9121}"},
			Tasks: []*clusterpb.TaskStatus{
				{Task: "worker:0", State: "exited", Host: "host0", Step: step},
				{Task: "worker:1", State: "exited", Host: "host1", Step: step},
				ps,
			},
		}
	}
	return []*clusterpb.RunUpdate{
		{Lines: &clusterpb.Lines{Before: 37, Head: []*clusterpb.Line{{Task: "worker:0-3 ×4", Text: "starting"}}}},
		{Status: status("running", 120)},
		{Lines: &clusterpb.Lines{
			Head: []*clusterpb.Line{{Task: "worker:0", Text: "first"}}, Skipped: 12345,
			Tail: []*clusterpb.Line{
				{Task: "worker:0", Text: "60/600", Carriage: true},
				{Task: "worker:1", Text: "<b>other</b>", Stream: clusterpb.Line_STDERR},
			},
		}},
		{Notes: []*clusterpb.Note{{Text: "worker:1 writes nothing for 60 s", Warning: true}}},
		{Status: status("finished", 600), Final: true},
	}
}

var took = regexp.MustCompile(`in \d+\.\d s`)

// TestTranscripts runs the cells of testdata/*.txt, lines that begin with "> ",
// and compares what each shows with what stands below it.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) != len(scenes) {
		t.Fatalf("%d transcripts for %d scenes, %v", len(files), len(scenes), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			drivers := newFakeDrivers(t)
			drivers.prep = scenes[strings.TrimSuffix(filepath.Base(file), ".txt")]
			s := NewSession(t.Context(),
				session.Options{Engines: engines(), Connector: drivers, Python: "python3", WorkingDir: "/work/dir", Client: "test"})
			t.Cleanup(s.Close)
			py := &fakePython{names: map[string]string{"lr": "0.1"}, exprs: map[string]string{"2*3": "6"}}
			var got strings.Builder
			for _, cell := range cellsOf(string(raw)) {
				got.WriteString(cell.shown + transcript(s, cell.code, py))
			}
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got.String() != string(raw) {
				t.Errorf("%s differs (go test ./magics -update writes it anew):\n%s", file, got.String())
			}
		})
	}
}

type transcriptCell struct{ shown, code string }

func cellsOf(text string) []transcriptCell {
	var cells []transcriptCell
	inCell := false
	for line := range strings.SplitSeq(text, "\n") {
		code, ok := strings.CutPrefix(line, "> ")
		if line == ">" {
			code, ok = "", true
		}
		if ok && !inCell {
			cells = append(cells, transcriptCell{})
		}
		if ok {
			c := &cells[len(cells)-1]
			c.shown += line + "\n"
			c.code += code + "\n"
		}
		inCell = ok
	}
	return cells
}

func transcript(s *Session, code string, py bridge.Python) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out := newRecord()
	v, err := runCode(ctx, s, code, out, py)
	text := out.settle()
	if result.Bundle(v) != nil {
		text += "val| " + v.String() + "\n"
	}
	if r := result.NewReport(err).WithHelp(false); r != nil {
		for _, line := range r.Lines {
			text += strings.TrimRight("bad| "+line, " ") + "\n"
		}
	}
	return took.ReplaceAllString(text, "in T s") + "\n"
}

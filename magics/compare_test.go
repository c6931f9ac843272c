package magics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// comparedDir is the folder of a cluster with three runs; the first one has no manifest.
func comparedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, m proto.Message) {
		t.Helper()
		file := filepath.Join(dir, name)
		b, err := protojson.Marshal(m)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(file), 0o700)
		}
		if err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rates := []string{"0.1", "0.2", "0.3"}
	for i, loss := range []float64{0.5, 0.25, 0.125} {
		n := int32(i + 1)
		write(rundir.Name(n)+"/run.json", &clusterpb.RunStatus{
			Id: n, State: "finished", Program: "train.py", Seconds: 61, Words: []string{"--lr", rates[i]},
			Tasks:    []*clusterpb.TaskStatus{{Task: "worker:0"}},
			Progress: &clusterpb.Report{Metrics: map[string]float64{"loss": loss}},
		})
		if n > 1 {
			write(rundir.Name(n)+"/"+results.ManifestFile, &clusterpb.RunManifest{
				Version: "1",
				Common: &clusterpb.TaskManifest{
					Packages: map[string]string{"numpy": "2." + rates[i]},
					Code:     map[string]string{"train.py": "hash" + rates[i]},
				}, Tasks: map[string]*clusterpb.TaskManifest{
					"worker:0": {Sources: map[string]string{"train.py": "lr = " + rates[i] + "\n"}},
				},
			})
		}
	}
	return dir
}

// TestCompareHistory: history --diff and --compare of a cluster that is over.
func TestCompareHistory(t *testing.T) {
	t.Parallel()
	a := &fakeArchive{pasts: []*state.ClusterRecord{
		{Name: "local-1", Dir: comparedDir(t), Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)},
	}}
	s := NewSession(t.Context(),
		session.Options{Connector: newFakeDrivers(t), Python: "python3", WorkingDir: "/work/dir", Client: "test", History: a})
	t.Cleanup(s.Close)
	diff := `see| run 2 → run 3
see| what      name      run 2    run 3
see| code      train.py  hash0.2  hash0.3
see| argument  --lr      0.2      0.3
see| package   numpy     2.0.2    2.0.3
see| --- run 2/train.py
see| +++ run 3/train.py
see| @@ -1 +1 @@
see| -lr = 0.2
see| +lr = 0.3
see| results
see| what    name  run 2  run 3
see| metric  loss  0.25   0.125
`
	for _, tt := range []struct{ line, want string }{
		{"history --diff", diff},
		{"history --diff 3", diff},
		{"history --diff 2 3", diff},
		{"history --diff 1 2", `see| run 1 → run 2
see| run 1 has no manifest: it was not entered, or was started by an earlier version; ` +
			`only its arguments and results are compared
see| what      name  run 1  run 2
see| argument  --lr  0.1    0.2
see| results
see| what    name  run 1  run 2
see| metric  loss  0.5    0.25
`},
		{"history --diff 2 2", "see| run 2 → run 2\nsee| nothing changed in what they ran with\n"},
		{"history --compare", `see| run  program   --lr  code        loss  took      state
see|   1  train.py  0.1   –         0.5000  00:01:01  finished
see|   2  train.py  0.2   df05b997  0.2500  00:01:01  finished
see|   3  train.py  0.3   c3a9e161  0.1250  00:01:01  finished
`},
		{"history --compare 3 1", `see| run  program   --lr  code        loss  took      state
see|   3  train.py  0.3   c3a9e161  0.1250  00:01:01  finished
see|   1  train.py  0.1   –         0.5000  00:01:01  finished
`},
		{
			"history --diff 1", "ClusterError: there is no earlier run to compare with; %tfcluster history --all lists the runs",
		},
		{
			"history --compare 9",
			"ClusterError: there is no run 9 in the cluster's directory; %tfcluster history --all lists the runs",
		},
		{"history 3", "UsageError: history: 3: runs can be named only with --diff or --compare: add one of them"},
		{
			"history --diff 1 2 3",
			"UsageError: history: --diff compares two runs, not more: use --compare, which makes a table",
		},
		{"history --diff last", "UsageError: history: last is not the number of a run: history --all lists them"},
		{"history --compare --diff", "UsageError: history: --diff and --compare exclude each other: give one of them"},
		{"history --prune --diff", "UsageError: --prune and --diff exclude each other: --prune removes runs and shows none"},
	} {
		out := newRecord()
		_, err := runCode(t.Context(), s, "%tfcluster "+tt.line+" -c local-1", out, &fakePython{})
		got := strings.TrimPrefix(out.settle(), "out| cluster local-1: released 2026-01-02 03:04:05\n")
		if r := result.NewReport(err); r != nil {
			got += r.Lines[0]
		}
		if got != tt.want {
			t.Errorf("%s shows\n%s\nwant\n%s", tt.line, got, tt.want)
		}
	}
	for line, want := range map[string]string{
		"history --diff 2 3": `{"kind":"package","name":"numpy","before":"2.0.2","after":"2.0.3"}`,
		"history --compare 2": `[{"run":2,"program":"train.py","state":"finished","seconds":61,"differing":{},` +
			`"metrics":{"loss":0.25}}]`,
	} {
		value, err := runCode(t.Context(), s, "%tfcluster "+line+" -c local-1", newRecord(), &fakePython{})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := result.JSON(value); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s returns %s: %v", line, text, err)
		}
	}
}

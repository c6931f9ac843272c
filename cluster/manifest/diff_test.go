package manifest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// sample returns a run with a manifest.
func sample(id int32, change func(*clusterpb.RunStatus, *clusterpb.RunManifest)) Run {
	st := &clusterpb.RunStatus{
		Id: id, Program: "train.py", State: "finished", Seconds: 10, Words: []string{"data", "--lr", "0.1", "--fast"},
		Tasks:    []*clusterpb.TaskStatus{{Task: "worker:0"}, {Task: "worker:1"}},
		Progress: &clusterpb.Report{Metrics: map[string]float64{"loss": 0.5}},
	}
	m := &clusterpb.RunManifest{
		Version: "1.0", Framework: "tensorflow", Options: map[string]string{"epochs": "1"},
		Git: &clusterpb.GitCommit{Commit: "0123456789abcdef", Branch: "main"},
		Common: &clusterpb.TaskManifest{
			Packages: map[string]string{"numpy": "2.1"}, Code: map[string]string{"train.py": "aaaaaaaaaaaaaaaa"},
			Environment: map[string]string{"X": "1", "PWD": fmt.Sprint("/", id)},
		},
		Tasks: map[string]*clusterpb.TaskManifest{
			"worker:0": {Host: fmt.Sprint("h", id), Sources: map[string]string{"train.py": "a\nb\n"}},
			"worker:1": {Host: "h", Environment: map[string]string{"Y": fmt.Sprint(id)}},
		},
	}
	if change != nil {
		change(st, m)
	}
	return Run{Status: st, Manifest: m}
}

// TestCompare: each kind of change is found, and what differs in every run is none.
func TestCompare(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*clusterpb.RunStatus, *clusterpb.RunManifest)
		want   []string
	}{
		"nothing": {nil, nil},
		"arguments": {func(st *clusterpb.RunStatus, _ *clusterpb.RunManifest) {
			st.Words = []string{"other", "--lr=0.2"}
		}, []string{"argument --fast: given → ", "argument --lr: 0.1 → 0.2", "argument 1: data → other"}},
		"secrets": {func(st *clusterpb.RunStatus, _ *clusterpb.RunManifest) {
			st.Words = append(st.Words, "--token", "abc")
		}, []string{"argument --token:  → …"}},
		"program and tasks": {func(st *clusterpb.RunStatus, _ *clusterpb.RunManifest) {
			st.Program, st.Tasks = "main_fun", append(st.Tasks, &clusterpb.TaskStatus{Task: "ps:0"})
		}, []string{"program : train.py → main_fun", "tasks : worker:0-1 → worker:0-1,ps:0"}},
		"code": {func(_ *clusterpb.RunStatus, m *clusterpb.RunManifest) {
			m.Common.Code["train.py"], m.Tasks["worker:0"].Sources["train.py"] = "bbbbbbbbbbbbbbbb", "a\nc\n"
		}, []string{"code train.py: aaaaaaaaaaaa → bbbbbbbbbbbb", "diff train.py -b +c"}},
		"a package of one task": {func(_ *clusterpb.RunStatus, m *clusterpb.RunManifest) {
			m.Common.Packages = map[string]string{}
			m.Tasks["worker:0"].Packages, m.Tasks["worker:1"].Packages = map[string]string{"numpy": "2.1"},
				map[string]string{"numpy": "1.26"}
		}, []string{"package numpy: 2.1 → 1.26 on worker:1, 2.1 on worker:0"}},
		"environment, version, git, files, options": {func(_ *clusterpb.RunStatus, m *clusterpb.RunManifest) {
			m.Common.Environment["X"], m.Version, m.Git.Dirty = "2", "1.1", true
			m.Files, m.Options["max_restarts"] = map[string]string{"a.txt": "ffff"}, "2"
		}, []string{
			"git : 0123456789ab (main) → 0123456789ab (main) with changes", "option --max_restarts:  → 2", "file a.txt:  → ffff",
			"version tfcluster: 1.0 → 1.1", "environment X: 1 → 2",
		}},
		"data, seeds, values": {func(_ *clusterpb.RunStatus, m *clusterpb.RunManifest) {
			use := &clusterpb.DataUse{By: "local_copy", Files: 2, Bytes: 10, Version: "abc"}
			m.Tasks["worker:0"].Data, m.Tasks["worker:1"].Data = map[string]*clusterpb.DataUse{"/d": use},
				map[string]*clusterpb.DataUse{"/d": use, "df": {By: "feed", Rows: 7}}
			m.Common.Seeds, m.Common.Values = map[string]string{"keras": "1"}, map[string]string{"LR": "0.1"}
		}, []string{
			"value LR:  → 0.1", "data /d:  → 2 files, 10 bytes, version abc", "data df:  → 7 records", "seed keras:  → 1",
		}},
		"results": {func(st *clusterpb.RunStatus, _ *clusterpb.RunManifest) {
			st.State, st.Seconds, st.Progress.Metrics = "failed", 12.34, map[string]float64{"loss": 0.25, "bad": math.NaN()}
		}, []string{"state : finished → failed", "seconds : 10.0 → 12.3", "metric loss: 0.5 → 0.25"}},
	} {
		d := Compare(sample(3, nil), sample(5, tt.change))
		var got []string
		for _, c := range append(d.Changes, d.Results...) {
			got = append(got, fmt.Sprintf("%s %s: %s → %s", c.Kind, c.Name, c.Before, c.After))
		}
		for file, text := range d.Sources {
			line := "diff " + file
			for l := range strings.SplitSeq(text, "\n") {
				if (strings.HasPrefix(l, "-") || strings.HasPrefix(l, "+")) && len(l) == 2 {
					line += " " + l
				}
			}
			got = append(got, line)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestCompareWithoutManifest: of a run of an earlier version only what its record has is compared.
func TestCompareWithoutManifest(t *testing.T) {
	t.Parallel()
	old := sample(1, func(st *clusterpb.RunStatus, _ *clusterpb.RunManifest) { st.Words = nil })
	old.Manifest = nil
	d := Compare(old, sample(2, nil))
	if len(d.Changes) != 3 || !slices.Equal(d.Missing, []int32{1}) || len(d.Sources) > 0 {
		t.Errorf("it is %+v", d)
	}
	if d := Compare(Run{Status: &clusterpb.RunStatus{}}, Run{Status: &clusterpb.RunStatus{}}); len(d.Changes) > 0 {
		t.Errorf("of empty records: %+v", d)
	}
}

// TestSourceDiffIsBounded: a long diff is cut.
func TestSourceDiffIsBounded(t *testing.T) {
	t.Parallel()
	text := func(line string) func(*clusterpb.RunStatus, *clusterpb.RunManifest) {
		return func(_ *clusterpb.RunStatus, m *clusterpb.RunManifest) {
			m.Tasks["worker:0"].Sources["train.py"] = strings.Repeat(line+"\n", 2000)
		}
	}
	d := Compare(sample(1, text("a")), sample(2, text("b"))).Sources["train.py"]
	if n := strings.Count(d, "\n"); n > maxDiff+2 || !strings.HasSuffix(d, "more lines\n") {
		t.Errorf("%d lines that end with %q", n, d[max(0, len(d)-40):])
	}
}

func TestTabulate(t *testing.T) {
	t.Parallel()
	c := Tabulate([]Run{
		sample(1, nil),
		sample(2, func(st *clusterpb.RunStatus, m *clusterpb.RunManifest) {
			st.Words[2], m.Common.Code["train.py"], st.Progress.Metrics = "0.2", "cc",
				map[string]float64{"accuracy": 0.9, "bad": math.Inf(1)}
		}),
	})
	if !slices.Equal(c.Columns, []string{"--lr", "code"}) || !slices.Equal(c.Metrics, []string{"accuracy", "loss"}) {
		t.Errorf("the columns are %q and %q", c.Columns, c.Metrics)
	}
	if r := c.Rows[1]; r.Run != 2 || r.Differing["--lr"] != "0.2" || r.Metrics["accuracy"] != 0.9 || len(r.Metrics) != 1 ||
		c.Rows[0].Differing["--lr"] != "0.1" || r.Differing["code"] == c.Rows[0].Differing["code"] {
		t.Errorf("the rows are %+v", c.Rows)
	}
	if c := Tabulate(nil); len(c.Rows) > 0 || len(c.Columns) > 0 {
		t.Errorf("of no runs: %+v", c)
	}
}

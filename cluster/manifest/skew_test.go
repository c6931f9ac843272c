package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

type tasks = map[string]*clusterpb.TaskManifest

func packages(pairs ...string) *clusterpb.TaskManifest {
	m := &clusterpb.TaskManifest{Packages: map[string]string{}, Versions: map[string]string{}, Code: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		m.Packages[pairs[i]] = pairs[i+1]
	}
	return m
}

// TestDifferences: one line for each difference, of what matters only.
func TestDifferences(t *testing.T) {
	t.Parallel()
	python := func(v string) *clusterpb.TaskManifest {
		return &clusterpb.TaskManifest{Versions: map[string]string{"Python": v}}
	}
	gpu := func(names ...string) *clusterpb.TaskManifest {
		m := &clusterpb.TaskManifest{}
		for i, n := range names {
			m.Gpus = append(m.Gpus, &clusterpb.ManifestGPU{Name: n, Uuid: fmt.Sprint(n, i)})
		}
		return m
	}
	for name, tt := range map[string]struct {
		tasks tasks
		want  []string
	}{
		"none":  {tasks{}, nil},
		"alone": {tasks{"worker:0": packages("numpy", "2.1")}, nil},
		"equal": {tasks{"worker:0": packages("numpy", "2.1"), "worker:1": packages("numpy", "2.1")}, nil},
		"minority": {tasks{
			"worker:0": packages("numpy", "2.1"),
			"worker:1": packages("numpy", "2.1"),
			"worker:2": packages("numpy", "2.1"),
			"worker:3": packages("numpy", "1.26"),
		}, []string{"worker:3 has numpy 1.26, the others 2.1"}},
		"two": {
			tasks{"worker:0": packages("numpy", "2.1"), "worker:1": packages("numpy", "1.26")},
			[]string{"worker:1 has numpy 1.26, worker:0 2.1"},
		},
		"a tie": {
			tasks{
				"chief:0": packages("a", "1"), "worker:0": packages("a", "2"), "worker:1": packages("a", "2"),
				"worker:2": packages("a", "1"),
			},
			[]string{"worker:0-1 have a 2, the others 1"},
		},
		"three values": {
			tasks{
				"worker:0": packages("a", "1"), "worker:1": packages("a", "1"), "worker:2": packages("a", "2"),
				"worker:3": packages("a", "3"),
			},
			[]string{"worker:2 has a 2, worker:3 3, the others 1"},
		},
		"another's imports": {tasks{"worker:0": packages("a", "1", "b", "1"), "ps:0": packages("a", "1")}, nil},
		"not installed": {
			tasks{"worker:0": packages("a", "1"), "worker:1": packages("a", "1"), "worker:2": {Absent: []string{"a", "x"}}},
			[]string{"worker:2 has no a, the others 1"},
		},
		"installed on one": {
			tasks{"worker:0": {Absent: []string{"a"}}, "worker:1": {Absent: []string{"a"}}, "worker:2": packages("a", "1")},
			[]string{"worker:2 has a 1, the others none"},
		},
		"host names and addresses": {
			tasks{
				"worker:0": {Host: "a", Environment: map[string]string{"X": "1"}, Cpus: 1},
				"worker:1": {Host: "b", Environment: map[string]string{"X": "2"}, Cpus: 2},
			}, nil,
		},
		"order": {
			tasks{
				"worker:0": {
					Packages: map[string]string{"aaa": "1", "numpy": "1"}, Versions: map[string]string{"Python": "3.12"},
					Code: map[string]string{"a.py": "x"},
				},
				"worker:1": {
					Packages: map[string]string{"aaa": "2", "numpy": "2"}, Versions: map[string]string{"Python": "3.11"},
					Code: map[string]string{"a.py": "y"},
				},
			},
			[]string{
				"worker:1 runs another a.py than worker:0", "worker:1 has Python 3.11, worker:0 3.12",
				"worker:1 has numpy 2, worker:0 1", "worker:1 has aaa 2, worker:0 1",
			},
		},
		"Python of many": {
			tasks{
				"worker:0": python("3.12.1"), "worker:1": python("3.11.2"), "worker:2": python("3.11.2"),
				"worker:3": python("3.12.1"), "worker:5": python("3.12.1"),
			},
			[]string{"worker:1-2 have Python 3.11.2, the others 3.12.1"},
		},
		"GPUs": {
			tasks{
				"worker:0": gpu("H100", "H100"), "worker:1": gpu("H100", "H100"), "worker:2": gpu("V100", "H100"), "ps:0": gpu(),
			},
			[]string{"worker:2 has GPU H100 ×1, V100 ×1, the others H100 ×2"},
		},
		"text of a program": {
			tasks{"worker:0": packages("a\n\x1b[31mb", strings.Repeat("9", 500)), "worker:1": packages("a\n\x1b[31mb", "1")},
			[]string{"worker:1 has a  [31mb 1, worker:0 " + strings.Repeat("9", maxShown) + "…"},
		},
	} {
		if got := Lines(Differences(tt.tasks), 10, ""); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	a, b := packages(), packages()
	for i := range 20 {
		a.Packages[fmt.Sprintf("p%02d", i)], b.Packages[fmt.Sprintf("p%02d", i)] = "1", "2"
	}
	got := Lines(Differences(tasks{"worker:0": a, "worker:1": b}), 3, "run-manifest.json")
	if len(got) != 4 || got[0] != "worker:1 has p00 2, worker:0 1" ||
		got[3] != "17 more differences between the tasks: run-manifest.json" {
		t.Errorf("the lines are %q", got)
	}
}

// TestLinesWithoutControlCharacters: a terminal shows the lines.
func TestLinesWithoutControlCharacters(t *testing.T) {
	t.Parallel()
	got := Lines(Differences(tasks{"worker:0": packages("a\x1bb", "1\u009b2"), "worker:1": packages("a\x1bb", "1")}), 3,
		"")
	if want := "worker:0 has a b 1 2, worker:1 1"; len(got) != 1 ||
		got[0] != want && got[0] != "worker:1 has a b 1, worker:0 1 2" {
		t.Errorf("the lines are %q, want %q", got, want)
	}
}

// TestOf: common entries are kept once, and every task's manifest is found again.
func TestOf(t *testing.T) {
	t.Parallel()
	of := tasks{
		"worker:0": {
			Host: "a", Attempt: 1, Cpus: 4, Python: "/p", Packages: map[string]string{"numpy": "2", "a": "1"},
			Sources: map[string]string{"m.py": "x"}, Gpus: []*clusterpb.ManifestGPU{{Name: "H100"}}, Absent: []string{"x"},
		},
		"worker:1": {
			Host: "b", Attempt: 1, Cpus: 4, Python: "/p", Packages: map[string]string{"numpy": "2", "a": "2"},
			Absent: []string{"x"}, Data: map[string]*clusterpb.DataUse{"u": {Files: 1}},
		},
		"worker:2": {Host: "c", Attempt: 2, Cpus: 8, Python: "/p", Packages: map[string]string{"numpy": "2"}},
	}
	before := map[string]*clusterpb.TaskManifest{}
	for name, m := range of {
		before[name] = proto.CloneOf(m)
	}
	run := Of(of)
	if c := run.GetCommon(); c.GetPython() != "/p" || c.GetCpus() != 0 ||
		!maps.Equal(c.GetPackages(), map[string]string{"numpy": "2"}) || len(c.GetAbsent()) > 0 {
		t.Errorf("the common entries are %v", c)
	}
	for name, m := range Expand(run) {
		if !proto.Equal(m, before[name]) || !proto.Equal(of[name], before[name]) {
			t.Errorf("%s is %v, want %v", name, m, before[name])
		}
	}
	if same := Of(tasks{"worker:0": of["worker:0"]}); len(same.GetTasks()["worker:0"].GetPackages()) > 0 ||
		!proto.Equal(Expand(same)["worker:0"], before["worker:0"]) {
		t.Errorf("of one task: %v", same)
	}
	if none := Of(nil); none.GetCommon() == nil || len(Expand(none)) > 0 || len(Expand(nil)) > 0 {
		t.Errorf("of no task: %v", none)
	}
}

// TestMerge: a later part replaces entries of the same name, another attempt everything. Shared maps of another task
// do not change.
func TestMerge(t *testing.T) {
	t.Parallel()
	first := packages("numpy", "2", "a", "1")
	first.Attempt, first.Gpus = 1, []*clusterpb.ManifestGPU{{Name: "H100"}}
	other := proto.CloneOf(first)
	Share(other, first)
	m := Merge(nil, other)
	Share(m, first)
	m = Merge(m, &clusterpb.TaskManifest{
		Attempt: 1, Packages: map[string]string{"a": "3", "b": "1"}, Gpus: []*clusterpb.ManifestGPU{{Name: "H100"}},
	})
	if !maps.Equal(m.GetPackages(), map[string]string{"numpy": "2", "a": "3", "b": "1"}) || len(m.GetGpus()) != 1 ||
		m.GetGpus()[0].GetName() != "H100" {
		t.Errorf("it is %v", m)
	}
	if len(first.GetPackages()) != 2 || first.GetPackages()["a"] != "1" {
		t.Errorf("the other task's is %v", first)
	}
	for i := range 2 * maxEntries {
		m = Merge(m,
			&clusterpb.TaskManifest{Attempt: 1, Packages: map[string]string{"a": fmt.Sprint(i), fmt.Sprint("p", i): "1"}})
	}
	if p := m.GetPackages(); len(p) != maxEntries || p["a"] != fmt.Sprint(2*maxEntries-1) || p["numpy"] != "2" {
		t.Errorf("after many parts there are %d packages", len(p))
	}
	if m = Merge(m, &clusterpb.TaskManifest{Attempt: 2, Host: "b"}); len(m.GetPackages()) > 0 || m.GetHost() != "b" {
		t.Errorf("of another attempt: %v", m)
	}
	if m = Merge(m, &clusterpb.TaskManifest{Attempt: 1, Host: "c"}); m.GetHost() != "b" {
		t.Errorf("a late part of an earlier attempt: %v", m)
	}
}

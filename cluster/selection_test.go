package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestSelectTasks: words select tasks, and what selects none is an error that names them.
func TestSelectTasks(t *testing.T) {
	t.Parallel()
	all := Tasks([]*clusterpb.Role{{Name: "chief", Count: 1}, {Name: "worker", Count: 4}, {Name: "ps", Count: 2}})
	for _, tt := range []struct {
		words string
		want  string
		err   string
	}{
		{"", "chief:0 worker:0 worker:1 worker:2 worker:3 ps:0 ps:1", ""},
		{"worker:1", "worker:1", ""},
		{"worker", "worker:0 worker:1 worker:2 worker:3", ""},
		{"worker:0-2", "worker:0 worker:1 worker:2", ""},
		{"ps worker:3 chief", "chief:0 worker:3 ps:0 ps:1", ""},
		{"worker:1 worker:0-1", "worker:0 worker:1", ""},
		{"chief,worker:0-1,3,ps", "chief:0 worker:0 worker:1 worker:3 ps:0 ps:1", ""},
		{"worker:2-9", "worker:2 worker:3", ""},
		{"worker:4", "", "no task is worker:4: the cluster has chief,worker:0-3,ps:0-1"},
		{"worker:1,4", "", "no task is worker:4"},
		{"evaluator", "", "no task is evaluator"},
		{"worker:2-1", "", "want worker:1"},
		{"worker:-1", "", "want worker:1"},
		{"worker:", "", "want worker:1"},
		{"1", "", "want worker:1"},
		{"worker:1,", "", "want worker:1"},
		{"Worker", "", "want worker:1"},
	} {
		got, err := SelectTasks(all, strings.Fields(tt.words))
		var names []string
		for _, task := range got {
			names = append(names, task.String())
		}
		if strings.Join(names, " ") != tt.want || (err == nil) != (tt.err == "") ||
			err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q selects %q, error %v; want %q, %q", tt.words, names, err, tt.want, tt.err)
		}
	}
}

// TestFoldTasks: short names of tasks, which select the tasks.
func TestFoldTasks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ tasks, want string }{
		{"worker:3", "worker:3"},
		{"chief:0", "chief:0"},
		{"worker:0 worker:1 worker:2 worker:3", "worker:0-3 ×4"},
		{"worker:2 chief:0 worker:0", "chief,worker:0,2 ×3"},
		{"ps:1 worker:7 ps:0 worker:8 worker:10", "worker:7-8,10,ps:0-1 ×5"},
	} {
		names := strings.Fields(tt.tasks)
		got := FoldTasks(names)
		if got != tt.want {
			t.Errorf("%s is folded to %q, want %q", tt.tasks, got, tt.want)
		}
		var all []TaskID
		for _, n := range names {
			task, err := ParseTask(n)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, task)
		}
		label, _, _ := strings.Cut(got, " ")
		if again, err := SelectTasks(all, []string{label}); err != nil || !slices.Equal(again, all) {
			t.Errorf("%s selects %v, error %v", label, again, err)
		}
	}
}

func FuzzSelectTasks(f *testing.F) {
	for _, s := range []string{"worker:1", "chief,worker:0-1,3", "worker:", ":", ",,", "worker:0-99999999999999999999"} {
		f.Add(s)
	}
	all := Tasks([]*clusterpb.Role{{Name: "chief", Count: 1}, {Name: "worker", Count: 4}})
	f.Fuzz(func(t *testing.T, word string) {
		got, err := SelectTasks(all, []string{word})
		if (err == nil) != (len(got) > 0) {
			t.Errorf("%q selects %v, error %v", word, got, err)
		}
	})
}

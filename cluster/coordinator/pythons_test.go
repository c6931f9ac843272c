package coordinator

import (
	"slices"
	"strconv"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestPythonsDiffer: each difference is said once, however many executors have it.
func TestPythonsDiffer(t *testing.T) {
	t.Parallel()
	var p pythons
	var texts []string
	has := func(id, python, tensorflow string) {
		p.set(cluster.ExecutorID(id), "host"+id, &clusterpb.Python{Version: python, Tensorflow: tensorflow})
		texts = append(texts, p.differences(cluster.ExecutorID(id))...)
	}
	has("0", "3.12", "2.20")
	has("0", "3.12", "2.20") // it joined again
	if len(texts) > 0 {
		t.Errorf("alone: %q", texts)
	}
	has("1", "3.12", "2.21")
	const end = "; one environment everywhere avoids errors that are hard to read"
	if want := []string{`TensorFlow differs: "2.21" on host1, "2.20" on host0` + end}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
	for i := range 100 {
		has(strconv.Itoa(2+i), "3.12", []string{"2.20", "2.21"}[i%2])
	}
	if len(texts) != 1 {
		t.Errorf("said again: %q", texts[1:])
	}
	for i := range 102 { // another environment for all
		p.set(cluster.ExecutorID(strconv.Itoa(i)), "", nil)
	}
	has("0", "3.13", "2.22")
	if len(texts) != 1 || len(p.hosts) != 1 {
		t.Errorf("beside Pythons that are gone: %q", texts[1:])
	}
}

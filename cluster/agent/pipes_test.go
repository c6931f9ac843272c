package agent

import (
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/agent/tasklog"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestLastWords: what a failure shows of standard error has neither bars nor lines of TensorFlow's
// that say nothing.
func TestLastWords(t *testing.T) {
	t.Parallel()
	o := &taskOutput{
		task: "worker:0", log: tasklog.NewShipper(t.TempDir()).Open(tasklog.Key{Run: 1, Task: "worker:0", Attempt: 1}),
	}
	o.store([]tasklog.Frame{
		{Text: "about to allocate"},
		{
			Text: "W0000 00:00:1795425002.309419   13436 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not be " +
				"optimized because …",
		},
		{Text: "10%", Carriage: true},
	}, clusterpb.Line_STDERR)
	o.store([]tasklog.Frame{{Text: "on standard output"}}, clusterpb.Line_STDOUT)
	if got := o.tail.lines(); !slices.Equal(got, []string{"about to allocate"}) {
		t.Errorf("the last words are %q", got)
	}
}

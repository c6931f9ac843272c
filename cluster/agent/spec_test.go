package agent

import (
	"maps"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/agent/gpu"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestTaskThreads: an executor's share of the cores is TensorFlow's default, the program's
// own word goes before it, and no task is left with one inter-op thread.
func TestTaskThreads(t *testing.T) {
	const intra, inter = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
	for _, c := range []struct {
		name         string
		share, cores int
		own          map[string]string
		want         map[string]string
	}{
		{name: "a share", share: 2, cores: 16, want: map[string]string{intra: "2"}},
		{name: "no share", cores: 16, want: map[string]string{}},
		{name: "one core", share: 1, cores: 1, want: map[string]string{intra: "1", inter: "4"}},
		{name: "the executor's own", share: 1, cores: 2, own: map[string]string{inter: "7"}, want: map[string]string{
			intra: "1",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k, v := range c.own {
				t.Setenv(k, v)
			}
			env := map[string]string{}
			setThreads(env, c.share, c.cores)
			if !maps.Equal(env, c.want) {
				t.Errorf("%v, want %v", env, c.want)
			}
		})
	}
	a := &Agent{cfg: &clusterpb.AgentConfig{Threads: 2}, gpus: heldGPUs{held: &gpu.Held{}}}
	env, err := a.taskEnv(&clusterpb.Launch{Env: map[string]string{intra: "5"}})
	if err != nil || env[intra] != "5" {
		t.Errorf("the launch's number became %q: %v", env[intra], err)
	}
}

// TestOptionsReachTheProgram: the run's options are in ctx, and adapt Keras or do not.
func TestOptionsReachTheProgram(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t)})
	c.runAgent(nil)
	c.warmed()
	const source = "import sys, tfcluster; ctx = tfcluster.context(); print('has', ctx.mode, ctx.epochs, " +
		"'tfcluster.keras_patch' in sys.modules)"
	for i, tt := range []struct {
		options *clusterpb.RunOptions
		want    string
	}{
		{nil, "has train 1 False"},
		{&clusterpb.RunOptions{Mode: "evaluate", Epochs: 7, KerasPatch: true}, "has evaluate 7 True"},
	} {
		run := int32(i + 1)
		c.prepare(run, 0)
		l := c.cell(run, source)
		l.Options = tt.options
		c.launch(l)
		x := c.exited(run)
		c.endRun(run, 0)
		if text := c.text(run); !strings.Contains(text, tt.want) {
			t.Errorf("run %d exited %v and wrote %q, want %q", run, x, text, tt.want)
		}
	}
}

func TestSplitTask(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, role string
		index      int
		ok         bool
	}{
		{"worker:1", "worker", 1, true},
		{"chief", "chief", 0, true},
		{"worker:1x", "", 0, false},
		{"worker:-1", "", 0, false},
		{":1", "", 0, false},
		{"worker:", "", 0, false},
	} {
		role, index, err := splitTask(tt.name)
		if role != tt.role || index != tt.index || (err == nil) != tt.ok {
			t.Errorf("%q: %q %d %v", tt.name, role, index, err)
		}
	}
}

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

const mirrored = `
import json, keras, numpy as np, tensorflow as tf
import tfcluster
ctx = tfcluster.context()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
x = np.random.default_rng(0).normal(size=(128, 4)).astype("float32")
model.fit(x, (x[:, 0] > 0).astype("int32"), batch_size=32, epochs=2, shuffle=False, verbose=2)
print("sum", ctx.task_index, float(sum(tf.reduce_sum(v) for v in model.trainable_variables)))
`

// warmAgent starts an agent with a coordinator of its own: two share nothing but
// the host's zygote, as two executors of one machine do.
func warmAgent(t *testing.T, dir string) *coordinator {
	t.Helper()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: testPython(t), Zygote: true})
	c.runAgent(func(cfg *clusterpb.AgentConfig) { cfg.Folders.RuntimeDir = dir })
	return c
}

func TestTwoExecutorsTrainTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Cleanup(func() { leftovers(t, dir) })
	agents := []*coordinator{warmAgent(t, dir), warmAgent(t, dir)}
	var addresses []string
	for _, c := range agents {
		if p := c.warmed(); p.GetError() != "" {
			t.Fatalf("warmed %v", p)
		}
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", c.prepare(1, 0)))
	}
	for i, c := range agents {
		l := c.cell(1, mirrored)
		l.Task, l.NumWorkers, l.Options = fmt.Sprintf("worker:%d", i), 2,
			&clusterpb.RunOptions{Callback: true, KerasPatch: true}
		l.ClusterSpec = fmt.Sprintf(`{"worker":[%q,%q]}`, addresses[0], addresses[1])
		l.Env = map[string]string{
			"TF_CONFIG": fmt.Sprintf(`{"cluster":%s,"task":{"type":"worker","index":%d}}`, l.ClusterSpec, i),
		}
		c.launch(l)
	}
	var sums []string
	for i, c := range agents {
		if x := c.exited(1); x.GetCode() != 0 {
			t.Fatalf("worker:%d exited %v", i, x)
		}
		e := c.event("the last step", func(e *clusterpb.TaskEvent) bool {
			return e.GetReport().GetStep() == 8 && e.GetReport().GetEpoch() == 2
		})
		if r := e.GetReport(); r.GetTotalSteps() != 8 || r.GetSource() != "keras" || r.GetMetrics()["loss"] == 0 {
			t.Errorf("worker:%d reported %v", i, r)
		}
		for line := range strings.Lines(c.text(1)) {
			if rest, ok := strings.CutPrefix(line, fmt.Sprintf("sum %d ", i)); ok {
				sums = append(sums, rest)
			}
		}
	}
	if len(sums) != 2 || sums[0] != sums[1] {
		t.Errorf("the weights' sums are %q", sums)
	}
}

func TestParameterServerWaitsAndIsEnded(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: testPython(t), Zygote: true})
	c.runAgent(nil)
	c.warmed()
	port := c.prepare(1, 0)
	l := c.cell(1, "import tfcluster\ntfcluster.context().start_cluster_server()[1].join()\n")
	l.Task, l.ClusterSpec = "ps:0", fmt.Sprintf(`{"ps":["127.0.0.1:%d"]}`, port)
	c.launch(l)
	c.event("server_joined", func(e *clusterpb.TaskEvent) bool { return e.GetServerJoined() != nil })
	c.endRun(1, time.Minute)
	if x := c.exited(1); x.GetCode() != 143 {
		t.Errorf("exited %v", x)
	}
}

// TestChangedPackagesRenewPython: a package that is installed after TensorFlow was imported gives the
// task a fresh interpreter, and the next run another zygote, whose forks see the package.
func TestChangedPackagesRenewPython(t *testing.T) {
	t.Parallel()
	packages := filepath.Join(t.TempDir(), "site-packages")
	c := newCoordinator(t,
		&clusterpb.WarmUp{Python: testPython(t), Zygote: true, Env: map[string]string{"PYTHONPATH": packages}})
	c.runAgent(nil)
	c.warmed()
	if err := os.MkdirAll(filepath.Join(packages, "late-1.0.dist-info"), 0o755); err != nil {
		t.Fatal(err)
	}
	fresh := map[int32]bool{}
	for run := int32(1); run <= 2; run++ {
		c.prepare(run, 0)
		c.launch(c.cell(run, "print('ran', flush=True)\n"))
		c.event("the end", func(e *clusterpb.TaskEvent) bool {
			if strings.Contains(e.GetNote().GetText(),
				"packages on disk changed since TensorFlow was imported: this task started a new Python") {
				fresh[e.GetRun()] = true
			}
			return e.GetRun() == run && e.GetExited() != nil
		})
		c.endRun(run, time.Minute)
	}
	if !fresh[1] || fresh[2] {
		t.Errorf("runs with a fresh interpreter: %v, want 1 alone", fresh)
	}
}

func TestImportTimeVariablesNeedAFreshPython(t *testing.T) {
	t.Parallel()
	imported := map[string]string{"KERAS_BACKEND": "tensorflow"}
	for _, test := range []struct {
		env  map[string]string
		want bool
	}{
		{map[string]string{"ANYTHING": "x"}, false},
		{map[string]string{"KERAS_BACKEND": "tensorflow"}, false},
		{map[string]string{"KERAS_BACKEND": "jax"}, true},
		{map[string]string{"TF_USE_LEGACY_KERAS": "1"}, true},
	} {
		if got := interpreter.NeedsFresh(test.env, imported); got != test.want {
			t.Errorf("%v: %v", test.env, got)
		}
	}
}

func TestOutOfMemoryCounter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, cgroups, file, content string }{
		{"version 2", "0::/user/task\n", "user/task/memory.events", "low 0\noom 3\noom_kill 2\n"},
		{"version 2 in a container", "0::/\n", "memory.events", "oom_kill 2\n"},
		{
			"version 1", "9:memory:/a/b\n0::/\n", "memory/a/b/memory.oom_control",
			"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		},
		{"version 1 in a container", "9:memory:/docker/x\n", "memory/memory.oom_control", "oom_kill 2\n"},
	} {
		root := t.TempDir()
		writeFile(t, root+"/"+test.file, test.content)
		if n := findOOMCounter(test.cgroups, root).read(); n != 2 {
			t.Errorf("%s: %d", test.name, n)
		}
	}
	if n := findOOMCounter("garbage", t.TempDir()).read(); n != 0 {
		t.Errorf("without a cgroup: %d", n)
	}
}

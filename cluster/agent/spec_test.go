package agent

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestTaskThreads: an executor's share of the cores is TensorFlow's default, and the
// launch's own word goes before it.
func TestTaskThreads(t *testing.T) {
	t.Setenv("TF_NUM_INTEROP_THREADS", "7")
	a := &Agent{cfg: Config{Threads: 2}, gpus: &heldGPUs{}}
	env := a.taskEnv(&clusterpb.Launch{})
	if env["TF_NUM_INTRAOP_THREADS"] != "2" {
		t.Errorf("a share of 2 cores is told as %q", env["TF_NUM_INTRAOP_THREADS"])
	}
	if v, ok := env["TF_NUM_INTEROP_THREADS"]; ok {
		t.Errorf("the environment's number was replaced by %q", v)
	}
	env = a.taskEnv(&clusterpb.Launch{Env: map[string]string{"TF_NUM_INTRAOP_THREADS": "5"}})
	if env["TF_NUM_INTRAOP_THREADS"] != "5" {
		t.Errorf("the launch's number became %q", env["TF_NUM_INTRAOP_THREADS"])
	}
}

// TestZygoteKey: nothing but an equal wish takes up a zygote.
func TestZygoteKey(t *testing.T) {
	t.Parallel()
	want := clusterpb.WarmUp{Python: "python3", Zygote: true, Env: map[string]string{"A": "1"}}
	same := clusterpb.WarmUp{Python: "python3", Zygote: true, Env: map[string]string{"A": "1"}}
	after := clusterpb.WarmUp{Python: "python3", Zygote: true, Env: map[string]string{"A": "1"}, Generation: 1}
	if zygoteKey(&want, "/p") != zygoteKey(&same, "/p") {
		t.Error("equal wishes have two zygotes")
	}
	if zygoteKey(&want, "/p") == zygoteKey(&after, "/p") {
		t.Error("after reset --hard the old zygote is taken up")
	}
}

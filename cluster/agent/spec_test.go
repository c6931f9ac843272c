package agent

import (
	"maps"
	"testing"

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
		{name: "the executor's own", share: 1, cores: 2, own: map[string]string{inter: "7"}, want: map[string]string{intra: "1"}},
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
	a := &Agent{cfg: Config{Threads: 2}, gpus: &heldGPUs{}}
	env, err := a.taskEnv(&clusterpb.Launch{Env: map[string]string{intra: "5"}})
	if err != nil || env[intra] != "5" {
		t.Errorf("the launch's number became %q: %v", env[intra], err)
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

// TestAskedPathIsNoNews: a task that is to search where its zygote searched may be a fork.
func TestAskedPathIsNoNews(t *testing.T) {
	t.Parallel()
	i := newInterpreter(zygoteStarter{t.TempDir()}, nil, nil)
	i.want = &clusterpb.WarmUp{Zygote: true, Env: map[string]string{pythonPath: "/reserved"}}
	for asked, fresh := range map[string]bool{"/reserved": false, "/started": true} {
		r := spawnRequest{Env: map[string]string{pythonPath: asked}}
		r.findOurs(i)
		if got := needsFresh(r.Env, i.imported(i.want)); got != fresh {
			t.Errorf("%s: a fresh interpreter is needed: %t", asked, got)
		}
	}
}

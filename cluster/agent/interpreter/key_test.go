package interpreter

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestZygoteKey: nothing but an equal wish takes up a zygote.
func TestZygoteKey(t *testing.T) {
	t.Parallel()
	want := clusterpb.WarmUp{Python: "python3", Zygote: true, Env: map[string]string{"A": "1"}}
	same := clusterpb.WarmUp{Python: "python3", Zygote: true, Env: map[string]string{"A": "1"}}
	after := clusterpb.WarmUp{Python: "python3", Zygote: true, Env: map[string]string{"A": "1"}, Generation: 1}
	if Key(&want, "/p") != Key(&same, "/p") {
		t.Error("equal wishes have two zygotes")
	}
	if Key(&want, "/p") == Key(&after, "/p") {
		t.Error("after reset --hard the old zygote is taken up")
	}
}

// TestAskedPathIsNoNews: a task that is to search where its zygote searched may be a fork.
func TestAskedPathIsNoNews(t *testing.T) {
	t.Parallel()
	i := New(Starter{t.TempDir()}, nil, nil)
	i.want = &clusterpb.WarmUp{Zygote: true, Env: map[string]string{pythonPath: "/reserved"}}
	for asked, fresh := range map[string]bool{"/reserved": false, "/started": true} {
		r := SpawnRequest{Env: map[string]string{pythonPath: asked}}
		r.WithPackage(i)
		if got := NeedsFresh(r.Env, i.Imported(i.want)); got != fresh {
			t.Errorf("%s: a fresh interpreter is needed: %t", asked, got)
		}
	}
}

// TestImportTimeEnvironment: what imports read in a zygote cannot be changed in its forks,
// so that agents which differ in that have zygotes of their own.
func TestImportTimeEnvironment(t *testing.T) {
	want := &clusterpb.WarmUp{Python: "python3", Zygote: true}
	t.Setenv("XLA_FLAGS", "--a")
	one := Key(want, "/p")
	t.Setenv("TFCLUSTER_TEST_UNRELATED", "x")
	if Key(want, "/p") != one {
		t.Error("a variable that no import reads makes another zygote")
	}
	t.Setenv("XLA_FLAGS", "--b")
	if Key(want, "/p") == one {
		t.Error("agents with different XLA_FLAGS share a zygote")
	}
}

package local_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

// harness returns a harness without TensorFlow and zygote: each task is a new interpreter.
func harness(t testing.TB) clustertest.Harness {
	return clustertest.Harness{
		Program: clustertest.Program(t), Python: clustertest.FindPython(t), AnyEngine: true,
		Reserve: &clusterpb.ReserveRequest{Backend: "local", IdleMillis: 60_000},
	}
}

func TestSmoke(t *testing.T) { clustertest.Smoke(t, harness(t)) }

func TestSuite(t *testing.T) { clustertest.Suite(t, harness(t)) }

// TestTooMuch: a request that exceeds this machine's resources fails at once, with the machine's resources
// in the error.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		each *clusterpb.Resources
		want string
	}{
		{"cpus", &clusterpb.Resources{Cpus: 5000}, "this machine has"},
		{"memory", &clusterpb.Resources{MemoryBytes: 1 << 50}, "this machine has"},
		{"gpus", &clusterpb.Resources{Gpus: 500}, "--gpus: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cl := harness(t).Launch(t, "worker=1", func(r *clusterpb.ReserveRequest) { r.Roles[0].Each = c.each })
			f := cl.Reserved()
			if f == nil || !strings.Contains(f.GetSummary(), c.want) {
				t.Errorf("failure is %v, want %q", f, c.want)
			}
		})
	}
}

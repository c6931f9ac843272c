package agent

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestTaskHasItsAgentsEnvironment: agents that share a zygote, or a forker, may live in
// different environments; each one's tasks see its own, and nothing of the other's.
func TestTaskHasItsAgentsEnvironment(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]*clusterpb.WarmUp{
		"forker": {Plain: true, Python: plainPython(t)},
		"bare":   {Python: plainPython(t)},
		"zygote": {Python: plainPython(t), Zygote: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			t.Cleanup(func() { leftovers(t, dir) })
			var agents []*coordinator
			for _, whose := range []string{"A", "B"} { // the first one's start the zygote
				c := newCoordinator(t, proto.CloneOf(want))
				c.killable(dir, whose, "WHOSE="+whose, "SECRET_OF_"+whose+"=1")
				c.warmed()
				agents = append(agents, c)
			}
			for i, whose := range []string{"A", "B"} {
				c := agents[i]
				c.prepare(1, 0)
				c.launch(c.command(1, "sh", "-c", "echo $WHOSE; env | grep ^SECRET_OF_"))
				c.exited(1)
				if got := c.text(1); !strings.Contains(got, whose+"\nSECRET_OF_"+whose+"=1\n") ||
					strings.Count(got, "SECRET") != 1 {
					t.Errorf("a command of agent %s sees %q", whose, got)
				}
				c.endRun(1, 0)
				c.prepare(2, 0)
				c.launch(
					c.cell(2, "import os; print(os.environ['WHOSE'], sorted(k for k in os.environ if k.startswith('SECRET_OF_')))"))
				c.exited(2)
				if got := c.text(2); !strings.Contains(got, whose+" ['SECRET_OF_"+whose+"']\n") {
					t.Errorf("a program of agent %s sees %q", whose, got)
				}
				c.endRun(2, 0)
			}
		})
	}
}

package agent

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWatches: who watches has what others save while it runs, a stage behind the training
// from its start, and a role that trains does not fetch it whatever it is called.
func TestWatches(t *testing.T) {
	t.Parallel()
	const program = `
import os, time, tfcluster
ctx = tfcluster.context()
first = os.listdir(ctx.checkpoint_dir)
end = time.monotonic() + 3
while not os.listdir(ctx.checkpoint_dir) and time.monotonic() < end: time.sleep(0.05)
print("held", first, "then", os.listdir(ctx.checkpoint_dir), flush=True)
`
	for _, tt := range []struct {
		name, task, kind string
		follows          bool
		want             string
	}{
		{"a trainer of the user's own", "trainer:0", "tracked", false, "held [] then []"},
		{"a stage behind it", "report:0", "tracked", true, "held ['a.keras'] then ['a.keras']"},
		{"a sidecar", "looker:0", "sidecar", false, "held [] then ['a.keras']"},
		{"an evaluator that is waited for", "evaluator:0", "tracked", false, "held [] then ['a.keras']"},
		{"a driver that does not say", "looker:0", "", false, "held [] then ['a.keras']"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, dir, _, _ := apart(t, true)
			close(c.mayPut)
			saved := filepath.Join(dir, "run-001", "checkpoints")
			if err := os.MkdirAll(saved, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(saved, "a.keras"), []byte("weights"), 0o600); err != nil {
				t.Fatal(err)
			}
			l := c.cell(1, program)
			l.Task, l.RoleKind, l.Follows, l.Attempt = tt.task, tt.kind, tt.follows, 1
			d := l.GetDirectories()
			d.Dir = filepath.Join(t.TempDir(), "run-001")
			d.Logs, d.Checkpoints, d.Export = d.Dir+"/logs", d.Dir+"/checkpoints", d.Dir+"/export"
			c.prepare(1, 1)
			c.launch(l)
			c.awaitLine(tt.want)
		})
	}
}

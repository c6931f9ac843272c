package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestWorkingDir: where a task starts, as its driver has it, on an executor that shares
// the driver's disk and on one with a disk of its own.
func TestWorkingDir(t *testing.T) {
	t.Parallel()
	notebook, given := t.TempDir(), t.TempDir()
	const own = "work-"
	for name, shares := range map[string]bool{"shared": true, "apart": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t)})
			shared := t.TempDir()
			c.runAgent(func(cfg *clusterpb.AgentConfig) {
				cfg.Folders.SharedDir = map[bool]string{true: shared}[shares]
			})
			c.warmed()
			for i, tt := range []struct {
				working, given string
				want           string // of the folder's name; "": it does not start
			}{
				{notebook, "", filepath.Base(notebook)},
				{"", "", map[bool]string{true: "run-002", false: own}[shares]},
				{"", given, filepath.Base(given)},
				{notebook, given, filepath.Base(given)},
				{"", "/no/such/folder", ""},
			} {
				run := int32(i + 1)
				c.prepare(run, 0)
				l := c.cell(run, "import os, tfcluster; print('in', os.getcwd()); print('told', tfcluster.context().working_dir)")
				l.Directories = &clusterpb.Directories{
					Dir: filepath.Join(shared, fmt.Sprintf("run-%03d", run)), Working: tt.working,
				}
				l.Options = &clusterpb.RunOptions{WorkingDir: notebook, StartIn: tt.given}
				c.launch(l)
				x, text := c.exited(run), ""
				c.endRun(run, 0)
				if tt.want == "" {
					if want := "--working-dir /no/such/folder is not a folder on "; !strings.Contains(x.GetReason(), want) ||
						x.GetCode() != -1 {
						t.Errorf("run %d exited %v, want %q", run, x, want)
					}
					continue
				}
				if text = c.text(run); !strings.Contains(filepath.Base(line(text, "in ")), tt.want) {
					t.Errorf("run %d starts in %q, want %s", run, text, tt.want)
				}
				if told := line(text, "told "); tt.working == "" && told != line(text, "in ") {
					t.Errorf("run %d: ctx.working_dir is %s:\n%s", run, told, text)
				}
			}
			if left, err := os.ReadDir(notebook); err != nil || len(left) > 0 {
				t.Errorf("in the notebook's folder lie %v: %v", left, err)
			}
		})
	}
}

// line is the rest of the last line that begins so.
func line(text, prefix string) (found string) {
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, prefix); ok {
			found = strings.TrimSpace(rest)
		}
	}
	return found
}

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// verbNotebook is the name of the notebook that uses every verb.
const verbNotebook = "verbs.ipynb"

// verbs runs e2e/tests/verb_notebook.py, which writes and checks that notebook.
func (s *Server) verbs(t testing.TB, action string) {
	t.Helper()
	root := repository(t)
	python := filepath.Join(root, ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skipf("missing: %s (make venv)", python)
	}
	script := filepath.Join(root, "e2e", "tests", "verb_notebook.py")
	if out, err := exec.CommandContext(t.Context(), python, script, action,
		filepath.Join(s.Root, verbNotebook)).CombinedOutput(); err != nil {
		t.Errorf("%s the notebook of all verbs: %v\n%s", action, err, out)
	}
}

// codeCell returns the position among the code cells of the one with this source.
func (s *Server) codeCell(t testing.TB, notebook, source string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Root, notebook))
	if err != nil {
		t.Fatal(err)
	}
	var nb struct {
		Cells []struct {
			Type   string          `json:"cell_type"`
			Source json.RawMessage // a string or a list of lines
		}
	}
	if err := json.Unmarshal(b, &nb); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range nb.Cells {
		if c.Type == "code" && strings.Contains(string(c.Source), source) {
			return n
		}
		if c.Type == "code" {
			n++
		}
	}
	t.Fatalf("%s has no cell %s", notebook, source)
	return 0
}

// everyVerb runs the notebook of all verbs, and looks at TensorBoard before the cluster is released. own are the
// errors in the console that the front end has without this project.
func (s *Server) everyVerb(t *testing.T, own []string) {
	t.Helper()
	s.verbs(t, "write")
	board := s.codeCell(t, verbNotebook, "%tfcluster tensorboard")
	r := s.RunNotebook(t, verbNotebook,
		fmt.Sprint("select:", board+1), "run-above", "idle", "frame:tb-webapp", "frame:scalar-card svg", "shot:tensorboard",
		fmt.Sprint("select:", board+1), "run-below", "text:cluster verbs released in", "idle", "shot:released", "save")
	checkRequests(t, r, own)
	framed := false
	for _, url := range r.Frames {
		framed = framed || strings.HasPrefix(url, s.Base+"tfcluster/verbs/")
	}
	if framed {
		t.Errorf("frames %v: one is of the released cluster", r.Frames)
	}
	s.verbs(t, "check")
	s.checkNoToken(t, verbNotebook)
}

// checkRequests fails the test if a request failed, or the console has errors that are not the front end's own.
func checkRequests(t *testing.T, r Result, own []string) {
	t.Helper()
	ours := slices.DeleteFunc(slices.Clone(r.Console), func(text string) bool { return slices.Contains(own, text) })
	if len(r.Failed) > 0 || len(ours) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, ours)
	}
}

// slowRun is a run whose lines and steps come one after the other.
const slowRun = `%%tfcluster start
import sys, time, tfcluster
ctx = tfcluster.context()
for step in range(1, 31):
    ctx.report(step=step, loss=1 / step)
    print("line", step, file=sys.stderr)
    time.sleep(0.1)`

// TestNotebook7: every verb in Notebook 7, TensorBoard in the cell without a failed request, and a run's progress in
// place, with the executors' stderr below it as it comes.
func TestNotebook7(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts Notebook 7, TensorBoard and a browser")
	}
	plain := StartNotebook(t, "")
	own := plain.RunNotebook(t, plain.WriteNotebook(t, "plain.ipynb", "python3", "1 + 1"), "run:0", "idle").Console
	s := StartNotebook(t, install(t))
	s.everyVerb(t, own)
	nb := s.WriteNotebook(t, "progress.ipynb", "tfcluster",
		"%tfcluster reserve --workers 2 --framework none --no-zygote", slowRun, "%tfcluster wait", "%tfcluster shutdown")
	r := s.RunNotebook(t, nb, "run:0", "idle", "run:1", "idle", "run:2", `text:· running · [\s\S]*step \d[\s\S]*line \d`,
		"shot:running", "idle", "shot:finished", "save")
	checkRequests(t, r, own)
	if strings.Count(r.Text, "run 1 · Cell In[2] · finished") != 1 || strings.Contains(r.Text, "· running ·") {
		t.Errorf("the progress is not replaced in place:\n%s", r.Text)
	}
	for _, want := range []string{"[worker:0] line 30", "[worker:1] line 30", "step 30"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the notebook does not show %q:\n%s", want, r.Text)
		}
	}
	s.RunNotebook(t, nb, "run:3", "text:released in", "idle")
}

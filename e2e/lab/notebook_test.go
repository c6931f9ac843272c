package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// install installs tfcluster into a new prefix.
func install(t *testing.T) (prefix string) {
	t.Helper()
	root, binary := repository(t), clustertest.Program(t)
	prefix = t.TempDir()
	python := filepath.Join(root, ".venv", "bin", "python")
	board := filepath.Join(root, ".venv-tensorboard", "bin", "python")
	for _, p := range []string{python, board} {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("missing: %s (make venv)", p)
		}
	}
	out, err := exec.Command(binary, "install", "--prefix", prefix, "--python", python, "--tensorboard-python",
		board).CombinedOutput()
	if err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	return prefix
}

// program trains for a few seconds and writes event files.
const program = `def main_fun(args, ctx):
    import sys, time
    import tensorflow as tf
    writer = tf.summary.create_file_writer(ctx.log_dir + "/" + ctx.job_name + str(ctx.task_index))
    with writer.as_default():
        for step in range(60):
            tf.summary.scalar("loss", 1 / (1 + step), step=step)
            ctx.report(step=step, loss=1 / (1 + step))
            writer.flush()
            time.sleep(0.1)
    print("trained", ctx.job_name, ctx.task_index, file=sys.stderr)`

// TestSession is a user's session: the kernel is restarted between start and wait, and TensorBoard is shown
// in the cell without a failed request.
func TestSession(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab, TensorFlow, TensorBoard and a browser")
	}
	prefix := install(t)
	s := Start(t, prefix)
	nb := s.WriteNotebook(t, "session.ipynb", "tfcluster",
		"%tfcluster reserve --workers 2", program, "%tfcluster start main_fun", "%tfcluster wait", "%tfcluster tensorboard",
		"%tfcluster status", "%tfcluster shutdown")
	r := s.RunNotebook(t, nb,
		"run:0", "idle", "run:1", "run:2", "idle", "shot:started", "restart", "run:3", "idle", "shot:waited", "run:4", "idle",
		"frame:tb-webapp", "frame:scalar-card svg", "shot:tensorboard", "run:5", "idle", "shot:status", "save")
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	for _, want := range []string{
		"2 executors = 2 workers", "attached", "[worker:1] trained worker 1", "worker1/loss 0.01667", "finished",
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the notebook does not show %q:\n%s", want, r.Text)
		}
	}
	s.checkNoToken(t, nb)
	s.RunNotebook(t, nb, "run:6", "text:released in", "idle") // else its processes stay when the server ends
}

// TestRunAllTwice: Run All works twice in the same kernel.
func TestRunAllTwice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab, TensorFlow and a browser")
	}
	prefix := install(t)
	s := Start(t, prefix)
	name := "03-failure-and-rerun.ipynb"
	s.copyNotebook(t, name, `rounds = globals().get("rounds", 0) + 1; print("all done", rounds)`)
	r := s.RunNotebook(t, name, "run-all", "text:all done 1", "idle", "select:4", "shot:failure", "run-all",
		"text:all done 2", "idle", "shot:second", "save")
	// JupyterLab renders only the cells in view: the file has them all.
	saved, err := os.ReadFile(filepath.Join(s.Root, name))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(saved), "trained 2 epochs") < 4 ||
		!strings.Contains(string(saved), "was killed by signal 9 (SIGKILL)") {
		t.Errorf("the notebook shows:\n%s\nand its file has\n%s", r.Text, saved)
	}
}

// TestQuickstart runs the cells of the first notebook one by one. TensorBoard's curves are shown in the
// cell before the cluster is released.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab, TensorFlow, TensorBoard and a browser")
	}
	prefix := ""
	if os.Getenv("TFCLUSTER_TEST_PIP") == "" { // else pip has installed all into TFCLUSTER_TEST_PYTHON's environment
		prefix = install(t)
	}
	s := Start(t, prefix)
	name := s.copyNotebook(t, "01-quickstart.ipynb")
	r := s.RunNotebook(t, name,
		"run:0", "idle", "run:1", "run:2", "run:3", "run:4", "idle", "shot:trained",
		"run:5", "idle", "frame:tb-webapp", "frame:scalar-card svg", "shot:tensorboard",
		"run:6", "run:7", "run:8", "text:released in", "idle", "shot:released", "select:5", "shot:curves", "save")
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	if a := lastAccuracy(t, r.Text); a < 0.85 {
		t.Errorf("accuracy %v:\n%s", a, r.Text)
	}
	for _, want := range []string{
		"[worker:1] worker:1 of 2 trains on 4096 images", "run 1 · main_fun · finished", "run 2 · Cell In[7] · finished",
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the notebook does not show %q:\n%s", want, r.Text)
		}
	}
	s.checkNoToken(t, name)
}

// TestParameterServer runs the second notebook with Run All.
func TestParameterServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab, TensorFlow and a browser")
	}
	s := Start(t, install(t))
	name := s.copyNotebook(t, "02-parameter-server.ipynb")
	r := s.RunNotebook(t, name, "run-all", "text:released in", "idle", "select:0", "shot:reserved", "select:3",
		"shot:waited", "save")
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	if a := lastAccuracy(t, r.Text); a < 0.8 {
		t.Errorf("accuracy %v:\n%s", a, r.Text)
	}
	for _, want := range []string{"4 executors = chief + 2 workers + 1 ps", "[ps:0] ps:0 serves", "main_fun · finished"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the notebook does not show %q:\n%s", want, r.Text)
		}
	}
	s.checkNoToken(t, name)
}

// copyNotebook copies a notebook of the repository, without outputs, and the module beside it to s.Root.
// more are code cells that are appended.
func (s *Server) copyNotebook(t *testing.T, name string, more ...string) string {
	t.Helper()
	notebooks := filepath.Join(repository(t), "notebooks")
	copyFile(t, filepath.Join(notebooks, "mnist.py"), filepath.Join(s.Root, "mnist.py"))
	withCells(t, filepath.Join(notebooks, name), filepath.Join(s.Root, name), more...)
	return name
}

// checkNoToken fails the test if a saved notebook contains a token.
func (s *Server) checkNoToken(t *testing.T, name string) {
	t.Helper()
	saved, err := os.ReadFile(filepath.Join(s.Root, name))
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`tfcluster/[\w.-]+/[0-9a-f]{32}`).Find(saved); m != nil {
		t.Errorf("the saved notebook contains the token: %s", m)
	}
}

// lastAccuracy returns the last accuracy that a notebook shows.
func lastAccuracy(t *testing.T, text string) float64 {
	t.Helper()
	all := regexp.MustCompile(`accuracy (0\.\d{3})\b`).FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return 0
	}
	a, err := strconv.ParseFloat(all[len(all)-1][1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// withCells copies a notebook without outputs, and appends code cells.
func withCells(t *testing.T, from, to string, more ...string) {
	t.Helper()
	var nb map[string]any
	b, err := os.ReadFile(from)
	if err == nil {
		err = json.Unmarshal(b, &nb)
	}
	if err != nil {
		t.Fatal(err)
	}
	cells, _ := nb["cells"].([]any)
	for _, c := range cells {
		if cell, ok := c.(map[string]any); ok && cell["cell_type"] == "code" {
			cell["outputs"], cell["execution_count"] = []any{}, nil
		}
	}
	for i, source := range more {
		cells = append(cells, map[string]any{
			"cell_type": "code", "id": fmt.Sprintf("added-%d", i), "source": source, "metadata": map[string]any{},
			"outputs": []any{}, "execution_count": nil,
		})
	}
	nb["cells"] = cells
	if b, err = json.Marshal(nb); err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

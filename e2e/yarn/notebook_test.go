package yarn

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// hadoop is the Hadoop of all tests.
var hadoop = clustertest.Share(hadooptest.Shared)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, hadoop)) }

// limit bounds one notebook: seven processes import TensorFlow, perhaps on a loaded machine.
const limit = 8 * time.Minute

// reader simulates a user with the notebooks and an installed kernel.
type reader struct {
	t       *testing.T
	python  string
	program string // the tfcluster binary
	prefix  string
	folder  string // of the notebooks
	env     []string
}

func newReader(t *testing.T, h *hadooptest.Cluster, python string) *reader {
	t.Helper()
	r := &reader{t: t, python: python, program: clustertest.Program(t), prefix: t.TempDir(), folder: t.TempDir()}
	r.env = append(os.Environ(), "HADOOP_CONF_DIR="+h.Conf, "TFCLUSTER_HOME="+filepath.Join(r.prefix, "state"))
	r.run(r.program, "install", "--prefix", r.prefix, "--python", python)
	t.Cleanup(func() {
		// After a failed test; otherwise there is no such cluster.
		_, _ = r.command(r.program, "shutdown", "--force", "-c", "overnight")
	})
	return r
}

func (r *reader) command(args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.WaitDelay = r.env, time.Second
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *reader) run(args ...string) {
	r.t.Helper()
	if out, err := r.command(args...); err != nil {
		r.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// notebooks is the folder of the repository's notebooks.
const notebooks = "../../notebooks"

// copyFile copies a file to the reader's folder.
func (r *reader) copyFile(folder, name string) {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = os.WriteFile(filepath.Join(r.folder, name), b, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// outputVar names the folder in which executed notebooks of the repository are stored.
const outputVar = "TFCLUSTER_NOTEBOOKS"

// execute runs a notebook in a new kernel and returns its output.
func (r *reader) execute(folder, name string) string {
	r.t.Helper()
	r.copyFile(folder, name)
	args := []string{r.python, filepath.Join(notebooks, "run.py"), "--prefix", r.prefix, "--clean"}
	output := r.t.TempDir()
	if to := os.Getenv(outputVar); to != "" && folder == notebooks {
		output = to
	}
	r.run(append(args, "--output", output, filepath.Join(r.folder, name))...)
	return outputText(r.t, filepath.Join(output, name))
}

// outputText returns the text of a notebook's outputs.
func outputText(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type text []string // one string or several lines
	var nb struct {
		Cells []struct {
			Outputs []struct {
				Text      json.RawMessage
				Data      map[string]json.RawMessage
				Traceback text
			}
		}
	}
	if err := json.Unmarshal(raw, &nb); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	add := func(m json.RawMessage) {
		var lines text
		var line string
		if json.Unmarshal(m, &lines) != nil {
			_ = json.Unmarshal(m, &line) // neither: another kind of output
		}
		b.WriteString(strings.Join(lines, "") + line + "\n")
	}
	for _, c := range nb.Cells {
		for _, o := range c.Outputs {
			add(o.Text)
			add(o.Data["text/plain"])
			b.WriteString(strings.Join(o.Traceback, "\n"))
		}
	}
	return b.String()
}

// TestOvernight writes the outputs of the notebooks about an overnight run, for make notebooks: containers of two
// sizes, a worker that dies at night, and a second kernel that shows it and resumes the training. TestYARN of e2e/lab
// runs the same notebooks in JupyterLab.
func TestOvernight(t *testing.T) {
	t.Parallel()
	if os.Getenv(outputVar) == "" {
		t.Skip("missing: " + outputVar + ", the folder of the outputs; TestYARN of e2e/lab runs the same notebooks")
	}
	python := clustertest.FindPython(t)
	r := newReader(t, hadoop.Get(t), python)
	r.copyFile(notebooks, "mnist.py")
	contains(t, "the evening", r.execute(notebooks, "05-yarn.ipynb"), "7 executors = chief + 4 workers + 2 ps",
		"continues after this kernel shuts down")
	text := r.execute(notebooks, "05-yarn-morning.ipynb")
	contains(t, "the morning", text, "worker:2", "SIGKILL", "epochs 0 to 5, accuracy", "epochs 6 to 11, accuracy",
		"released in")
	_, last, _ := strings.Cut(text[strings.LastIndex(text, "\naccuracy "):], "accuracy ")
	if a, err := strconv.ParseFloat(strings.Fields(last)[0], 64); err != nil || a < 0.8 {
		t.Errorf("accuracy %v (%v):\n%s", a, err, text)
	}
}

// TestFeed: arrays of the notebook are fed to the containers of two NodeManagers: train, evaluate and inference deliver
// each record once per epoch, also after a restart; workers have equal batches; programs that leave or
// fail end the feed.
func TestFeed(t *testing.T) {
	t.Parallel()
	r := newReader(t, hadoop.Get(t), clustertest.FindPython(t))
	contains(t, "the notebook", r.execute("testdata", "feed.ipynb"),
		"train: 20003 {2} 2", "evaluate: {'mean': 10001.0}", "inference: 20003 True", "equal batches: True 10001",
		"1 record left out", "records not read", "ValueError: enough: ", "the feed begins again at the first record",
		"restarted: 20003 {2} 2", "released in")
}

func contains(t *testing.T, what, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%s does not show %q:\n%s", what, w, text)
		}
	}
}

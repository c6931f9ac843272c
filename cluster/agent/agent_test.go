package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// testPython is an interpreter with TensorFlow: TFCLUSTER_TEST_PYTHON, or the
// one of the checkout.
func testPython(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("TFCLUSTER_TEST_PYTHON"); p != "" {
		return p
	}
	p, err := filepath.Abs("../../.venv/bin/python")
	if err == nil {
		if _, err = os.Stat(p); err == nil {
			return p
		}
	}
	t.Skip("no Python with TensorFlow: neither TFCLUSTER_TEST_PYTHON nor ../../.venv/bin/python")
	return ""
}

// plainPython is any Python 3.11 or newer.
func plainPython(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "../../.venv/bin/python"} {
		p, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if p, err = filepath.Abs(p); err == nil &&
			exec.Command(p, "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run() == nil {
			return p
		}
	}
	t.Skip("no Python 3.11 or newer: neither python3 nor ../../.venv/bin/python")
	return ""
}

// bare starts a coordinator and an agent whose Python imports nothing.
func bare(t *testing.T) *coordinator {
	t.Helper()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t)})
	c.runAgent(nil)
	c.warmed()
	return c
}

func TestCellRunsAndItsLinesCome(t *testing.T) {
	t.Parallel()
	c := bare(t)
	port := c.prepare(1, 0)
	c.launch(
		c.cell(1, "import os, sys\nprint('hello', os.environ['TF_GRPC_REUSE_PORT'])\nprint('bad', file=sys.stderr)\n"))
	if x := c.exited(1); x.GetCode() != 0 || x.GetSignal() != 0 || x.GetReason() != "" {
		t.Errorf("exited %v", x)
	}
	text := c.text(1)
	for _, want := range []string{"hello true", "bad"} {
		if !strings.Contains(text, want) {
			t.Errorf("the lines lack %q: %q", want, text)
		}
	}
	c.event("Entered", func(e *clusterpb.TaskEvent) bool { return e.GetEntered() != nil })
	c.endRun(1, time.Second)
	if next := c.prepare(2, 0); next == port {
		t.Logf("port %d came again: allowed once it was released", port)
	}
}

func TestExits(t *testing.T) {
	t.Parallel()
	c := bare(t)
	tests := []struct {
		name, source string
		code, signal int32
		exception    string
	}{
		{"returns", "x = 1\n", 0, 0, ""},
		{"raises", "def f():\n    raise ValueError('no such thing')\nf()\n", 1, 0, "ValueError: no such thing"},
		{"exits with a code", "raise SystemExit(7)\n", 7, 0, ""},
		{"exits with words", "raise SystemExit('why')\n", 1, 0, ""},
		{"is interrupted", "raise KeyboardInterrupt\n", 130, 0, "KeyboardInterrupt"},
		{"kills itself", "import os\nos.kill(os.getpid(), 9)\n", -1, 9, ""},
		{"aborts", "import os\nos.abort()\n", -1, 6, ""},
		{"cannot be compiled", "def f(:\n", 1, 0, "SyntaxError: invalid syntax"},
	}
	for i, test := range tests {
		run := int32(i + 1)
		c.prepare(run, 0)
		c.launch(c.cell(run, test.source))
		x := c.exited(run)
		if x.GetCode() != test.code || x.GetSignal() != test.signal || x.GetOutOfMemory() {
			t.Errorf("%s: exited %v, want code %d, signal %d", test.name, x, test.code, test.signal)
		}
		if !strings.Contains(x.GetException(), test.exception) {
			t.Errorf("%s: exception %q, want %q", test.name, x.GetException(), test.exception)
		}
		if test.name == "raises" {
			want := "File \"<cell [7]>\", line 2, in f\n    raise ValueError('no such thing')"
			if !strings.Contains(x.GetTraceback(), want) || strings.Contains(x.GetTraceback(), "runner.py") {
				t.Errorf("traceback:\n%s", x.GetTraceback())
			}
			if tail := strings.Join(x.GetTail(), "\n"); !strings.Contains(tail, want) {
				t.Errorf("tail: %s", tail)
			}
		}
		c.endRun(run, 0)
	}
}

func TestFunctionInAWarmPython(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: testPython(t), Zygote: true})
	c.runAgent(nil)
	python := c.warmed()
	if python.GetError() != "" || python.GetTensorflow() == "" || python.GetKeras() == "" || !python.GetZygote() {
		t.Fatalf("warmed: %v", python)
	}
	program := `
import sys, cloudpickle
def main_fun(args, ctx):
    import random, numpy, sys, tensorflow as tf
    print("imported", "tensorflow" in sys.modules, args, ctx.job_name, ctx.task_index, flush=True)
    drawn = [random.random(), float(numpy.random.rand()), float(tf.random.normal([]))]
    return {"sum": float(tf.reduce_sum(tf.ones([3]))), "random": drawn}
sys.stdout.buffer.write(cloudpickle.dumps(main_fun))
`
	pickled, err := exec.Command(testPython(t), "-c", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]bool{}
	for run := int32(1); run <= 2; run++ {
		c.prepare(run, 0)
		l := c.cell(run, "")
		l.Program = &clusterpb.Program{
			Kind: clusterpb.Program_FUNCTION, Name: "main_fun", Body: c.blob(string(pickled)), Words: []string{"--epochs", "3"},
		}
		c.launch(l)
		if x := c.exited(run); x.GetCode() != 0 {
			t.Fatalf("exited %v", x)
		}
		e := c.event("the result", func(e *clusterpb.TaskEvent) bool { return e.GetRun() == run && e.GetResult() != nil })
		if !strings.Contains(e.GetResult().GetJson(), `"sum": 3.0`) || len(e.GetResult().GetPickled()) == 0 {
			t.Errorf("result %v", e.GetResult())
		}
		results[e.GetResult().GetJson()] = true
		entered := c.event("Entered", func(e *clusterpb.TaskEvent) bool { return e.GetRun() == run && e.GetEntered() != nil })
		t.Logf("entered after %.3f s", entered.GetEntered().GetStartSeconds())
		c.endRun(run, 0)
	}
	if len(results) != 2 {
		t.Errorf("two tasks drew the same random numbers: %v", results)
	}
	if text := c.text(2); !strings.Contains(text, "imported True ['--epochs', '3'] worker 0") {
		t.Errorf("lines: %q", text)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

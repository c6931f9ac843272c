package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

func TestPythonThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: "/no/such/python"})
	c.runAgent(nil)
	if p := c.warmed(); !strings.Contains(p.GetError(), "run /no/such/python: no such file") {
		t.Errorf("warmed %v", p)
	}
	c.prepare(1, 0)
	c.launch(c.cell(1, ""))
	if x := c.exited(1); !strings.Contains(x.GetReason(), "no such file") || x.GetCode() != -1 {
		t.Errorf("exited %v", x)
	}
	c.text(1)
}

// TestPythonThatFailedOnceIsTriedAgain: a zygote killed while it imports is not the
// executor's end.
func TestPythonThatFailedOnceIsTriedAgain(t *testing.T) {
	t.Parallel()
	python := filepath.Join(t.TempDir(), "python")
	script := fmt.Sprintf("#!/bin/sh\n[ -e %[1]s.tried ] && exec %[2]s \"$@\"\n: >%[1]s.tried\nkill -9 $$\n", python,
		plainPython(t))
	executable.Write(t, python, script)
	c := newCoordinator(t, &clusterpb.WarmUp{Python: python})
	c.runAgent(nil)
	if warmed := c.warmed(); !strings.Contains(warmed.GetError(), "killed") {
		t.Fatalf("warmed: %v", warmed)
	}
	c.prepare(1, 0)
	c.launch(c.cell(1, "print('runs')"))
	if x := c.exited(1); x.GetCode() != 0 || !strings.Contains(c.text(1), "runs") {
		t.Errorf("exited %v", x)
	}
}

// TestForkThatKillsEveryZygote: after a few the task is told to have failed.
func TestForkThatKillsEveryZygote(t *testing.T) {
	t.Parallel()
	python := filepath.Join(t.TempDir(), "python")
	script := "#!" + plainPython(t) + `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[sys.argv.index("--socket") + 1])
s.listen()
agent, _ = s.accept()
agent.sendall(b'{"op":"ready","python":{}}\n')
agent.recv(1)
`
	executable.Write(t, python, script)
	c := newCoordinator(t, &clusterpb.WarmUp{Python: python})
	c.runAgent(nil)
	c.warmed()
	c.prepare(1, 0)
	c.launch(c.cell(1, "print('never')"))
	if x := c.exited(1); !strings.Contains(x.GetReason(), "that tasks are forked from (the zygote) ended unexpectedly") {
		t.Errorf("exited %v", x)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	c := bare(t)
	for run, test := range map[int32]struct {
		words []string
		code  int32
		says  string
	}{
		1: {[]string{"sh", "-c", "echo $GREETING; exit 4"}, 4, "hello"},
		2: {[]string{"no-such-command"}, 127, "cannot run no-such-command: No such file or directory"},
		3: {[]string{"/etc/passwd"}, 126, "cannot run /etc/passwd: Permission denied"},
	} {
		c.prepare(run, 0)
		l := c.cell(run, "")
		l.Program = &clusterpb.Program{Kind: clusterpb.Program_COMMAND, Words: test.words}
		l.Env = map[string]string{"GREETING": "hello"}
		c.launch(l)
		if x := c.exited(run); x.GetCode() != test.code {
			t.Errorf("%q exited %v", test.words, x)
		}
		if text := c.text(run); !strings.Contains(text, test.says) {
			t.Errorf("%q wrote %q", test.words, text)
		}
		c.endRun(run, 0)
	}
}

// TestCommandsPythonPath: a command imports what it would without us. Tasks that are our
// Python find our package all the same.
func TestCommandsPythonPath(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]*clusterpb.WarmUp{
		"forker": {Plain: true, Python: plainPython(t)},
		"zygote": {Python: plainPython(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCoordinator(t, want)
			dir := t.TempDir()
			t.Cleanup(func() { leftovers(t, dir) })
			c.killable(dir, "0", "PYTHONPATH=/own")
			c.warmed()
			for i, asked := range []string{"/own", "/asked"} {
				run := int32(i + 1)
				c.prepare(run, 0)
				l := c.command(run, "sh", "-c", "echo path [$PYTHONPATH]")
				if asked != "/own" {
					l.Env["PYTHONPATH"] = asked
				}
				c.launch(l)
				c.exited(run)
				if text := c.text(run); !strings.Contains(text, "path ["+asked+"]\n") {
					t.Errorf("where %s is the user's, a command has %q", asked, text)
				}
				c.endRun(run, 0)
			}
			c.prepare(3, 0)
			c.launch(c.cell(3, "import os, tfcluster; print('ours', os.environ['PYTHONPATH'])"))
			if x := c.exited(3); x.GetCode() != 0 || !strings.Contains(c.text(3), ":/own\n") {
				t.Errorf("a program exited %v and wrote %q", x, c.text(3))
			}
			c.endRun(3, 0)
			c.prepare(4, 0)
			l := c.cell(4, "import os, tfcluster; print('ours', os.environ['PYTHONPATH'])")
			l.Env = map[string]string{"PYTHONPATH": "/asked"}
			c.launch(l)
			if x := c.exited(4); x.GetCode() != 0 || !strings.Contains(c.text(4), "/asked\n") {
				t.Errorf("a program with a path of its own exited %v and wrote %q", x, c.text(4))
			}
		})
	}
}

func TestBlobThatIsNotWhatItsNameSays(t *testing.T) {
	t.Parallel()
	c := bare(t)
	good := c.blob("print('x')")
	c.mu.Lock()
	c.blobs[good.GetSha256()] = []byte("print('y')")
	c.mu.Unlock()
	for run, digest := range map[int32]string{1: good.GetSha256(), 2: strings.Repeat("0", 64), 3: "../../etc/passwd"} {
		c.prepare(run, 0)
		l := c.cell(run, "")
		l.Program.Body = &clusterpb.Blob{Sha256: digest}
		c.launch(l)
		if x := c.exited(run); !strings.Contains(x.GetReason(), "SHA-256") {
			t.Errorf("%s: exited %v", digest, x)
		}
		c.endRun(run, 0)
	}
}

func TestBarrierAndTrainingOver(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	l := c.cell(1, `
import os, tfcluster.context
ctx = tfcluster.context()
ctx.barrier("start")
print("passed", flush=True)
for path in ctx.checkpoints():
    print("saw", os.path.basename(path), flush=True)
print("over", flush=True)
`)
	checkpoints := t.TempDir()
	l.Directories.Checkpoints = checkpoints
	c.launch(l)
	c.await("the arrival", func() bool {
		for _, m := range c.messages {
			if m.GetBarrier().GetName() == "start" {
				return true
			}
		}
		return false
	})
	c.do(&clusterpb.Instruction{
		Instruction: &clusterpb.Instruction_Barrier{Barrier: &clusterpb.BarrierReleased{Run: 1, Name: "start"}},
	})
	c.awaitLine("passed")
	if err := os.WriteFile(filepath.Join(checkpoints, "a.keras"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.awaitLine("saw a.keras")
	c.do(&clusterpb.Instruction{
		Instruction: &clusterpb.Instruction_TrainingOver{TrainingOver: &clusterpb.TrainingOver{Run: 1}},
	})
	if x := c.exited(1); x.GetCode() != 0 {
		t.Errorf("exited %v", x)
	}
	if text := c.text(1); !strings.Contains(text, "over") {
		t.Errorf("lines %q", text)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		`{"identity":{"executor_id":"0"},` +
			`"driver":{"coordinator":"h:1"}}`: "lacks runtime_dir",
		`{"identity":{"executor_id":"0"},"driver":{"coordinator":"h:1"},"folders":{"runtime_dir":"/r"},` +
			`"gpus":{"count":-1}}`: "negative",
		`{"identity":{"executor_id":"0"},"driver":{"coordinator":"h:1"},"folders":{"runtime_dir":"/r"},` +
			`"a_newer_driver's":"word"}`: "certificate",
	} {
		cfg, err := clusterpb.ReadAgentConfig(strings.NewReader(input))
		if err != nil {
			t.Fatal(err)
		}
		if dir := cfg.GetFolders(); dir != nil {
			dir.RuntimeDir = t.TempDir()
		}
		if err := Run(t.Context(), cfg, "test", slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", input, err, want)
		}
	}
	for name, r := range map[string]io.Reader{
		"nothing": strings.NewReader(""), "a list": strings.NewReader("[]"),
		"a broken pipe": io.MultiReader(strings.NewReader("{"), errorReader{}),
	} {
		if _, err := clusterpb.ReadAgentConfig(r); err == nil ||
			!strings.Contains(err.Error(), "read the agent's configuration") {
			t.Errorf("%s was taken for a configuration: %v", name, err)
		}
	}
}

func TestRuntimeFolder(t *testing.T) {
	t.Parallel()
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := prepareFolder(open); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(open); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(open, link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		link: "belongs to another user: remove it", "/" + strings.Repeat("x", 100): "longer than",
	} {
		if err := prepareFolder(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v", dir, err)
		}
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

package local_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// batch is a tfcluster run command in its own folder.
type batch struct {
	t        *testing.T
	dir      string
	cmd      *exec.Cmd
	out, err syncBuffer
}

// syncBuffer collects a command's output.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *syncBuffer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *syncBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// startBatch starts tfcluster run on this machine without TensorFlow, and without Python if only commands
// are run.
func startBatch(t *testing.T, args ...string) *batch {
	t.Helper()
	b := &batch{t: t, dir: t.TempDir()}
	ctx, cancel := context.WithTimeout(context.Background(), clustertest.Deadline)
	t.Cleanup(cancel)
	b.cmd = exec.CommandContext(ctx, clustertest.Program(t), append([]string{"run", "--no-zygote"}, args...)...)
	python := "/no/python3"
	if !slices.Contains(args, cluster.Plain) {
		python = clustertest.FindPython(t)
	}
	b.cmd.Env = append(os.Environ(), "TFCLUSTER_PYTHON="+python)
	b.cmd.Dir, b.cmd.Stdout, b.cmd.Stderr = b.dir, &b.out, &b.err
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return b
}

// end waits for the command and compares its exit code.
func (b *batch) end(code int) *batch {
	b.t.Helper()
	err := b.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	if got := b.cmd.ProcessState.ExitCode(); got != code {
		b.t.Fatalf("exit code %d, want %d\n%s\n%s", got, code, b.out.String(), b.err.String())
	}
	return b
}

// prints checks that the output contains all of the texts.
func (b *batch) prints(texts ...string) *batch {
	b.t.Helper()
	for _, text := range texts {
		if all := b.out.String() + b.err.String(); !strings.Contains(all, text) {
			b.t.Errorf("no %q in\n%s", text, all)
		}
	}
	return b
}

// file waits for a file that a task writes at once and returns its contents.
func (b *batch) file(name string) string {
	b.t.Helper()
	var text []byte
	clustertest.WaitFor(b.t, "the file "+name, func() bool {
		text, _ = os.ReadFile(filepath.Join(b.dir, name))
		return len(text) > 0
	})
	return string(text)
}

// script writes a program and returns its path.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program.py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// awaitFile returns a shell command that waits until a file is not empty.
func awaitFile(file string) string { return "until [ -s " + file + " ]; do sleep 0.05; done" }

// TestBatch: the command's exit code shows how the run ended. docs/tony.md refers to the cases by name.
func TestBatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		args   []string
		code   int
		prints []string
	}{
		{
			"a chief fails",
			[]string{"--chief", "--workers", "1", "--chief-command", "exit 7", "--worker-command", "sleep 60"},
			7,
			[]string{"chief:0", "exited with code 7", "files are in"},
		},
		{
			"a worker that is no chief fails",
			[]string{"--workers", "2", "sh", "-c", `[ $TASK_INDEX = 0 ] && sleep 60; exit 3`},
			3,
			[]string{"worker:1", "exited with code 3"},
		},
		{"all fail", []string{"--workers", "2", "--ps", "1", "sh", "-c", "exit 1"}, 1, []string{"exited with code 1"}},
		{"one process alone", []string{
			"--workers", "1", "--env", "GREETING=hello", "sh", "-c", "echo $GREETING from $JOB_NAME:$TASK_INDEX of $TASK_NUM",
		}, 0, []string{"hello from worker:0 of 1"}},
		{"a program that is not there", []string{"--workers", "1", "no-such-command-anywhere"}, 127, []string{
			"cannot run no-such-command-anywhere",
		}},
		{"a worker is late", []string{
			"--workers", "2", "--ps", "1", "--ps-command", "sleep 60", "sh", "-c", `[ $TASK_INDEX = 1 ] || sleep 0.5; echo done`,
		}, 0, []string{"[worker:0] done", "[worker:1] done"}},
		{"a parameter server ends last", []string{
			"--chief", "--workers", "1", "--ps", "1", "--ps-command", "sleep 60", "sh", "-c", "sleep 0.$TASK_INDEX",
		}, 0, nil},
		{
			"a parameter server crashes",
			[]string{"--workers", "2", "--ps", "1", "--worker-command", "sleep 60", "--ps-command", "sleep 0.2; exit 1"},
			1,
			[]string{"ps:0", "exited with code 1"},
		},
		{"a sidecar hangs", []string{
			"--workers", "1", "--role", "tensorboard=1", "--tensorboard-command", "sleep 60", "--worker-command", "true",
		}, 0, nil},
		{"stages in their order", []string{
			"--workers", "1", "--ps", "1", "--role", "db=1", "--role", "loader=1", "--db-kind", "sidecar", "--loader-depends-on",
			"db", "--ps-depends-on", "loader", "--worker-depends-on", "loader,ps", "--db-command", "echo up > db; sleep 60",
			"--loader-command", awaitFile("db") + "; cat db; sleep 0.3; echo loaded > data", "--ps-command",
			"echo ps has $(cat data) > ps; sleep 60", "--worker-command", awaitFile("ps") + "; cat data ps",
		}, 0, []string{"[loader:0] up", "[worker:0] loaded", "[worker:0] ps has loaded"}},
		{"a stage fails", []string{
			"--workers", "1", "--role", "loader=1", "--worker-depends-on", "loader", "--loader-command", "exit 4",
			"--worker-command", "echo never",
		}, 4, []string{"loader:0"}},
		{"a stage behind the training fails once", []string{
			"--max-restarts", "1", "--workers", "1", "--role", "report=1", "--report-depends-on", "worker",
			"--report-end-within", "5m", "--worker-command", "true", "--report-command",
			"[ -e tried ] || { echo so > tried; exit 3; }; echo reported",
		}, 0, []string{"report:0", "exited with code 3; restart 1 of 1", "[report:0] reported"}},
		{"a worker hangs behind the chief", []string{
			"--chief", "--workers", "1", "--worker-end-within", "300ms", "--chief-command", "true",
			"--worker-command", "sleep 60",
		}, 124, []string{"worker:0 did not end within 300ms", "--worker-kind untracked"}},
		{"a worker hangs behind the chief and may", []string{
			"--chief", "--workers", "1", "--ps", "1", "--worker-kind", "untracked", "--worker-end-within", "300ms",
			"--chief-command", "true", "sleep", "60",
		}, 0, []string{"worker:0 did not end within 300ms"}},
		{"a worker that may hang fails", []string{
			"--chief", "--workers", "1", "--worker-kind", "untracked", "--worker-end-within", "1m", "--chief-command", "true",
			"--worker-command", "sleep 0.3; exit 1",
		}, 1, []string{"worker:0"}},
		{"a run's time is over", []string{"--workers", "1", "--run-timeout", "300ms", "sleep", "60"}, 124, []string{
			"did not end within 300ms",
		}},
		{"nothing to run", []string{"--workers", "1", "--ps", "1", "--worker-command", "true"}, 2, []string{
			"the program is missing",
		}},
		{"more than there is", []string{"--workers", "4", "--memory", "900000g", "true"}, 69, []string{"this machine has"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			startBatch(t, append([]string{"--framework", "none"}, c.args...)...).end(c.code).prints(c.prints...)
		})
	}
}

// TestBatchSidecar: the failure of a sidecar is reported at once, and the run goes on.
func TestBatchSidecar(t *testing.T) {
	t.Parallel()
	b := startBatch(t, "--framework", "none", "--workers", "1", "--role", "board=1", "--board-kind", "sidecar",
		"--board-command", "exit 9", "--worker-command", awaitFile("go"))
	clustertest.WaitFor(t, "the note about the sidecar", func() bool {
		return strings.Contains(b.out.String()+b.err.String(), "exited with code 9; training continues without it")
	})
	if err := os.WriteFile(filepath.Join(b.dir, "go"), []byte("on"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.end(0).prints("board:0")
}

// TestBatchNotReserved: the error names an executor whose Python does not start in time. The timeout is
// long enough for its agent to join on a loaded machine.
func TestBatchNotReserved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	python, pids := filepath.Join(dir, "python3"), filepath.Join(dir, "pid")
	executable.Write(t, python, "#!/bin/sh\necho $$ > "+pids+"\nexec sleep 60\n")
	startBatch(t, "--python", python, "--reserve-timeout", "10s", "--workers", "1",
		script(t, "pass")).end(75).prints("not reserved within 10s", "worker:0", "Python is warming up")
	text, err := os.ReadFile(pids)
	pid, perr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || perr != nil {
		t.Fatal(err, perr)
	}
	clustertest.WaitFor(t, "that Python's end", func() bool { return !state.ProcessOf(pid).Alive() })
}

// TestBatchSignals: a signal to the command stops the run, which may save, and releases its executors. The
// exit code contains the signal.
func TestBatchSignals(t *testing.T) {
	t.Parallel()
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			b := startBatch(t, "--framework", "none", "--workers", "1", "sh", "-c",
				`trap 'echo saved > saved; exit 0' TERM; echo here; while :; do sleep 0.05; done`)
			// Before its first line the program has not set its handler.
			clustertest.WaitFor(t, "the task's line", func() bool { return strings.Contains(b.out.String(), "] here") })
			if err := b.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			b.end(code).prints("the run was stopped; its executors are released")
			if got := b.file("saved"); got != "saved\n" {
				t.Errorf("saved %q", got)
			}
		})
	}
}

// TestBatchDetach: --detach prints only the cluster's name; the run goes on without the command.
func TestBatchDetach(t *testing.T) {
	t.Parallel()
	b := startBatch(t, "--framework", "none", "--workers", "1", "--idle", "1m", "--detach", "sh", "-c",
		"while [ ! -e go ]; do sleep 0.05; done; exit 5").end(0)
	name := strings.TrimSuffix(b.out.String(), "\n")
	if err := cluster.CheckName(name); err != nil || b.err.String() != "" {
		t.Fatalf("wrote %q and %q, %v", b.out.String(), b.err.String(), err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), clustertest.Deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, clustertest.Program(t), "wait", "-c", name).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("wait: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(ctx, clustertest.Program(t), "shutdown", "-c", name).CombinedOutput(); err != nil {
		t.Errorf("shutdown: %v\n%s", err, out)
	}
}

// TestBatchRestart: if a worker is killed, all tasks restart from their checkpoints, as often as permitted.
func TestBatchRestart(t *testing.T) {
	t.Parallel()
	path := script(t, `
import os, pathlib, signal, time, tfcluster
ctx = tfcluster.context()
saved = pathlib.Path(ctx.checkpoint_dir, f"step-{ctx.task_index}")
step = int(saved.read_text()) if saved.exists() else 0
print("from step", step, flush=True)
saved.write_text(str(step + 1))
ctx.barrier()
if ctx.task_index == 1 and step < 2:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.2 if step >= 2 else 60)
`)
	startBatch(t, "--workers", "2", "--max-restarts", "2", path).end(0).prints("restart 1 of 2", "restart 2 of 2",
		"from step 2")
	startBatch(t, "--workers", "2", "--max-restarts", "1", path).end(137).prints("restart 1 of 1", "killed by signal 9")
}

// TestStackRequest: after a step's timeout Python writes its stacks. Commands, which the signal would kill,
// do not get it.
func TestStackRequest(t *testing.T) {
	t.Parallel()
	// If the run waited for the command, the test would exceed its limit.
	startBatch(t, "--framework", "none", "--workers", "1", "--step-timeout", "300ms", "sleep",
		"36000").end(124).prints("no step for 300ms")
}

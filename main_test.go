package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain is the program itself where a test starts it as one.
func TestMain(m *testing.M) {
	if path := os.Getenv(noteConfig); path != "" && len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(noteAgentConfig(path, os.Args[2:]))
	}
	if os.Getenv("TFCLUSTER_TEST_MAIN") != "" {
		os.Exit(run(context.Background(), os.Args[1:]))
	}
	os.Exit(m.Run())
}

// program is a run of the program by a user who has nothing but what env adds.
func program(t *testing.T, dir string, env []string, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], words...)
	cmd.Dir = dir
	cmd.Env = append([]string{"TFCLUSTER_TEST_MAIN=1", "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "PATH=" + os.Getenv("PATH")}, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestHelp: whoever asks for help gets it, and whoever errs is told in one line.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		words  string
		code   int
		stdout string // what it holds
		stderr string // all of it, but for the last newline
	}{
		{words: "", stdout: "  install "},
		{words: "--help", stdout: "  install "},
		{words: "-h", stdout: "  run "},
		{words: "help", stdout: "  install "},
		{words: "help --help", stdout: "  install "},
		{words: "help run", stdout: "tfcluster run [options] PROGRAM [words]"},
		{words: "run --help", stdout: "tfcluster run [options] PROGRAM [words]"},
		{words: "status -h", stdout: "tfcluster status [options]"},
		{words: "install --help", stdout: "usage: tfcluster install"},
		{words: "help uninstall", stdout: "usage: tfcluster install"},
		{words: "version --help", stdout: "version"},
		{words: "kernel --help", stdout: "a Jupyter server starts"},
		{words: "driver --help", stdout: "reserve and run start"},
		{words: "help agent", stdout: "a driver starts"},
		{words: "status", code: 1, stderr: "tfcluster: there is no cluster; tfcluster run makes one"},
		{words: "status --al", code: 2, stderr: "tfcluster: status: no option --al: did you mean --all?"},
		{words: "install --nosuch", code: 2, stderr: "tfcluster install: no option --nosuch; tfcluster install --help lists them"},
		{words: "install --prefix", code: 2, stderr: "tfcluster install: --prefix needs a value; tfcluster install --help says which"},
		{words: "install here", code: 2, stderr: `tfcluster install: unexpected word "here"`},
		{words: "uninstall --user --sys-prefix", code: 2, stderr: "tfcluster uninstall: --user, --prefix and --sys-prefix exclude one another"},
	} {
		t.Run(tt.words, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := program(t, "", nil, strings.Fields(tt.words)...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || strings.TrimSuffix(stderr, "\n") != tt.stderr {
				t.Errorf("exit code %d, want %d\nstdout %q, want in it %q\nstderr %q, want %q", code, tt.code, stdout, tt.stdout, stderr, tt.stderr)
			}
		})
	}
}

// fakePython is an interpreter that says of itself what facts holds.
func fakePython(t *testing.T, facts string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+facts+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUninstallNeedsNoPython: what install wrote goes also when its Python went first.
func TestUninstallNeedsNoPython(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	python := fakePython(t, `{"Executable": "/fake/python3", "Prefix": "/fake", "IPykernel": true}`)
	if _, stderr, code := program(t, "", nil, "install", "--prefix", prefix, "--python", python); code != 0 {
		t.Fatal(stderr)
	}
	for name, python := range map[string]string{
		"none":              filepath.Join(prefix, "gone"),
		"without ipykernel": fakePython(t, `{"Executable": "/fake/python3", "Prefix": "/fake"}`),
	} {
		if _, stderr, code := program(t, "", nil, "uninstall", "--prefix", prefix, "--python", python); code != 0 {
			t.Errorf("%s: %s", name, stderr)
		}
	}
	if left, err := filepath.Glob(filepath.Join(prefix, "share", "jupyter", "kernels", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, stderr, code := program(t, "", nil, "install", "--prefix", prefix, "--python", fakePython(t, `{}`)); code != 2 || !strings.Contains(stderr, "has no ipykernel") {
		t.Errorf("install without ipykernel: %d %s", code, stderr)
	}
}

// TestWorkingDirectoryIsNoLibrary: install asks Python, not what lies where it is called.
func TestWorkingDirectoryIsNoLibrary(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("missing: python3")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "json.py"), []byte("import os\nopen('was-run', 'w')\nos._exit(0)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, _ := program(t, dir, nil, "uninstall", "--prefix", dir, "--python", python)
	if _, err := os.Stat(filepath.Join(dir, "was-run")); err == nil {
		t.Errorf("json.py of the working directory was run: %s", stderr)
	}
}

// TestShellPython: tasks started from a shell run with the Python that install was
// given, unless the environment says otherwise.
func TestShellPython(t *testing.T) {
	const board = "/board/python"
	for _, key := range []string{"HOME", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "XDG_DATA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "TFCLUSTER_PYTHON", "TFCLUSTER_TENSORBOARD_PYTHON"} {
		t.Setenv(key, "")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	check := func(when, tasks, tensorboard string) {
		t.Helper()
		if got, tb := shellPython(); got != tasks || tb != tensorboard {
			t.Errorf("%s: %q and %q, want %q and %q", when, got, tb, tasks, tensorboard)
		}
	}
	check("without an install", "python3", "python3")
	python := fakePython(t, `{"Executable": "/fake/python3", "Prefix": "/fake", "IPykernel": true}`)
	if _, stderr, code := program(t, "", []string{"HOME=" + home}, "install", "--user", "--python", python, "--tensorboard-python", board); code != 0 {
		t.Fatal(stderr)
	}
	check("installed", "/fake/python3", board)
	t.Setenv("VIRTUAL_ENV", "/venv")
	check("in an environment", "python3", board)
	t.Setenv("TFCLUSTER_PYTHON", "/named/python3")
	t.Setenv("TFCLUSTER_TENSORBOARD_PYTHON", "/other/python")
	check("named", "/named/python3", "/other/python")
}

// TestTensorBoardPython: who names no environment for TensorBoard has it in the notebook's.
func TestTensorBoardPython(t *testing.T) {
	for named, want := range map[string]string{"": "/notebook/python", "/board/python": "/board/python"} {
		t.Setenv("TFCLUSTER_TENSORBOARD_PYTHON", named)
		if opt, err := sessionOptions("", "/notebook/python"); err != nil || opt.TensorBoardPython != want {
			t.Errorf("named %q: %q, %v, want %q", named, opt.TensorBoardPython, err, want)
		}
	}
}

// TestKeepDescriptors: what a shell left open is not handed on.
func TestKeepDescriptors(t *testing.T) {
	t.Parallel()
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	keepDescriptors()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v: a child would inherit it", flags, err)
	}
}

// TestGuardBeginsEarly: a guard, of which there is one an executor, is done before what it
// does not need is initialised. See package forking.
func TestGuardBeginsEarly(t *testing.T) {
	t.Parallel()
	_, inits, code := program(t, "", []string{"GODEBUG=inittrace=1"}, "guard", "true")
	if code != 0 || !strings.Contains(inits, "init syscall @") {
		t.Fatalf("exit code %d, and the runtime told no initialisation:\n%s", code, inits)
	}
	for _, late := range []string{module + "/cluster", "google.golang.org/grpc @", "github.com/colinmarc/hdfs"} {
		if strings.Contains(inits, "init "+late) {
			t.Errorf("%s was initialised before it:\n%s", late, inits)
		}
	}
	if _, said, code := program(t, "", nil, "guard"); code != 127 || said != "tfcluster guard: no command\n" {
		t.Errorf("without a command its exit code is %d, and it says %q", code, said)
	}
}

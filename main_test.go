package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/magics/session"
)

// TestMain is also the program itself, when a test starts it.
func TestMain(m *testing.M) {
	if path := os.Getenv(configFileVar); path != "" && len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(writeAgentConfig(path, os.Args[2:]))
	}
	if os.Getenv(panelVar) != "" {
		if err := talkToPanel(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("TFCLUSTER_TEST_MAIN") != "" {
		os.Exit(run(context.Background(), os.Args[1:]))
	}
	os.Exit(m.Run())
}

// program runs the program as a user without any settings but env.
func program(t *testing.T, dir string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(
		[]string{"TFCLUSTER_TEST_MAIN=1", "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "PATH=" + os.Getenv("PATH")}, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestHelp: every request for help is answered, and errors are short.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args   string
		code   int
		stdout string // expected substring
		stderr string // expected output without the last newline
	}{
		{args: "", stdout: "  install "},
		{args: "--help", stdout: "  install "},
		{args: "-h", stdout: "  run "},
		{args: "help", stdout: "  install "},
		{args: "help --help", stdout: "  install "},
		{args: "help run", stdout: "tfcluster run [options] PROGRAM [words]"},
		{args: "run --help", stdout: "tfcluster run [options] PROGRAM [words]"},
		{args: "status -h", stdout: "tfcluster status [options]"},
		{args: "install --help", stdout: "usage: tfcluster install"},
		{args: "help uninstall", stdout: "usage: tfcluster install"},
		{args: "version --help", stdout: "version"},
		{args: "kernel --help", stdout: "a Jupyter server starts"},
		{args: "driver --help", stdout: "reserve and run start"},
		{args: "help driver-died", stdout: "tfcluster attach NAME"},
		{args: "help agent", stdout: "a driver starts"},
		{
			args: "status", code: 1,
			stderr: "tfcluster: there is no cluster; tfcluster run makes one\nMore: tfcluster help no-cluster",
		},
		{
			args: "status --al", code: 2,
			stderr: "tfcluster: status: no option --al: did you mean --all?\nMore: tfcluster help status",
		},
		{
			args: "install --nosuch", code: 2,
			stderr: "tfcluster install: no option --nosuch; tfcluster install --help lists them",
		},
		{
			args: "install --prefix", code: 2,
			stderr: "tfcluster install: --prefix needs a value; tfcluster install --help describes it",
		},
		{
			args: "install here", code: 2, stderr: `tfcluster install: unexpected argument "here": ` +
				`tfcluster install takes only options; tfcluster install --help lists them`,
		},
		{
			args: "uninstall --user --sys-prefix", code: 2,
			stderr: "tfcluster uninstall: --user, --prefix and --sys-prefix exclude each other: give one of them",
		},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := program(t, "", nil, strings.Fields(tt.args)...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || strings.TrimSuffix(stderr, "\n") != tt.stderr {
				t.Errorf("exit code %d, want %d\nstdout %q, want in it %q\nstderr %q, want %q", code, tt.code, stdout, tt.stdout,
					stderr, tt.stderr)
			}
		})
	}
}

// fakePython writes an interpreter that prints facts.
func fakePython(t *testing.T, facts string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python3")
	executable.Write(t, path, "#!/bin/sh\necho '"+facts+"'\n")
	return path
}

// TestUninstallNeedsNoPython: uninstall works even if the interpreter was removed before.
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
	if _, stderr, code := program(t, "", nil, "install", "--prefix", prefix, "--python", fakePython(t, `{}`)); code != 2 ||
		!strings.Contains(stderr, "has no ipykernel") {
		t.Errorf("install without ipykernel: %d %s", code, stderr)
	}
}

// TestWorkingDirectoryIsNoLibrary: install does not import modules of the working directory.
func TestWorkingDirectoryIsNoLibrary(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("missing: python3")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "json.py"), []byte("import os\nopen('was-run', 'w')\nos._exit(0)\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, _ := program(t, dir, nil, "uninstall", "--prefix", dir, "--python", python)
	if _, err := os.Stat(filepath.Join(dir, "was-run")); err == nil {
		t.Errorf("json.py of the working directory was run: %s", stderr)
	}
}

// TestShellPython: tasks started from a shell use the Python of the install, unless an environment variable
// or an active environment overrides it.
func TestShellPython(t *testing.T) {
	const board = "/board/python"
	for _, key := range []string{
		"HOME", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "XDG_DATA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
		"TFCLUSTER_PYTHON", "TFCLUSTER_TENSORBOARD_PYTHON",
	} {
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
	if _, stderr, code := program(t, "", []string{"HOME=" + home}, "install", "--user", "--python", python,
		"--tensorboard-python", board); code != 0 {
		t.Fatal(stderr)
	}
	check("installed", "/fake/python3", board)
	t.Setenv("CONDA_PREFIX", "/conda")
	t.Setenv("CONDA_DEFAULT_ENV", "base")
	check("in conda's base", "/fake/python3", board)
	t.Setenv("CONDA_PREFIX", "/conda/envs/mine")
	t.Setenv("CONDA_DEFAULT_ENV", "mine")
	check("in an environment of conda's", "python3", board)
	t.Setenv("CONDA_DEFAULT_ENV", "base")
	t.Setenv("VIRTUAL_ENV", "/venv")
	check("in an environment", "python3", board)
	t.Setenv("TFCLUSTER_PYTHON", "/named/python3")
	t.Setenv("TFCLUSTER_TENSORBOARD_PYTHON", "/other/python")
	check("named", "/named/python3", "/other/python")
}

// TestTensorBoardPython: without a setting, TensorBoard uses the notebook's Python.
func TestTensorBoardPython(t *testing.T) {
	for named, want := range map[string]string{"": "/notebook/python", "/board/python": "/board/python"} {
		t.Setenv("TFCLUSTER_TENSORBOARD_PYTHON", named)
		if opt, err := sessionOptions("", "/notebook/python"); err != nil || opt.TensorBoardPython != want {
			t.Errorf("named %q: %q, %v, want %q", named, opt.TensorBoardPython, err, want)
		}
	}
}

// TestKeepDescriptors: files that the caller left open are not inherited.
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

// TestGuardBeginsEarly: a guard, of which each executor has one, runs before packages that it does not need
// are initialised. See package forking.
func TestGuardBeginsEarly(t *testing.T) {
	t.Parallel()
	_, inits, code := program(t, "", []string{"GODEBUG=inittrace=1"}, "guard", "true")
	if code != 0 || !strings.Contains(inits, "init syscall @") {
		t.Fatalf("exit code %d, and the runtime printed no initialisation:\n%s", code, inits)
	}
	for _, late := range []string{module + "/cluster", "google.golang.org/grpc @", "github.com/colinmarc/hdfs"} {
		if strings.Contains(inits, "init "+late) {
			t.Errorf("%s was initialised before the guard:\n%s", late, inits)
		}
	}
	if _, stderr, code := program(t, "", nil, "guard"); code != 127 || stderr != "tfcluster guard: no command\n" {
		t.Errorf("without a command the exit code is %d, and the output %q", code, stderr)
	}
}

// TestChannels: what doctor knows of the channels is what the connection file says.
func TestChannels(t *testing.T) {
	t.Parallel()
	const keys = `,"curve_publickey":"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID",` +
		`"curve_secretkey":"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"`
	for text, want := range map[string]session.Channels{
		`{"transport":"tcp","ip":"127.0.0.1"}`:                 {Host: "127.0.0.1"},
		`{"transport":"tcp","ip":"127.0.0.1"` + keys + `}`:     {Host: "127.0.0.1", Encrypted: true},
		`{"transport":"ipc","ip":"/run/user/1/kernel"}`:        {},
		`{"transport":"ipc","ip":"/run/user/1/k"` + keys + `}`: {Encrypted: true},
	} {
		file := filepath.Join(t.TempDir(), "kernel.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := channels(file); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if _, err := channels(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("a file that is not there has channels")
	}
}

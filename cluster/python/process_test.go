package python

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// TestOfProcess: OfProcess returns the path with which a process was started, or the path that the shell found.
func TestOfProcess(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("missing: sleep")
	}
	top := t.TempDir()
	environment, shims := filepath.Join(top, "my env", "bin"), filepath.Join(top, "shims")
	for _, dir := range []string{environment, shims} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	python := filepath.Join(environment, "python")
	if err := os.Symlink(program, python); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(shims, "python"), "#!/bin/sh\n")
	const absolute = "/opt/my env/bin/python3.11"
	for _, tt := range []struct{ name, word, path, want string }{
		{"an absolute path", absolute, "", absolute},
		{"python of an active environment", "python", shims + ":" + environment + ":/usr/bin", python},
		{"a path from the working folder", "my env/bin/python", "", python},
		{"python that is not on PATH", "python", shims + ":/usr/bin", ""},
		{"a relative folder of PATH", "python", "my env/bin", ""},
		{"another program", "/usr/bin/node", "", ""},
		{"another word", "sleep", filepath.Dir(program), ""},
	} {
		cmd := exec.CommandContext(t.Context(), program, "60")
		cmd.Args[0], cmd.Dir, cmd.Env = tt.word, top, []string{"PATH=" + tt.path}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitArguments(t, cmd)
		got := OfProcess(cmd.Process.Pid)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := OfProcess(999999999); got != "" {
		t.Errorf("no process: %q", got)
	}
}

// awaitArguments waits until /proc shows the arguments of a process: Start returns a moment before the
// kernel has set them.
func awaitArguments(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	path := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "cmdline")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if line, err := os.ReadFile(path); err == nil && bytes.HasPrefix(line, append([]byte(cmd.Args[0]), 0)) {
			return
		}
	}
	t.Fatalf("%s does not show %q", path, cmd.Args[0])
}

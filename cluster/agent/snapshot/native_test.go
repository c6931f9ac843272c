package snapshot

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// TestNative: Native returns py-spy's text, or why there is none.
func TestNative(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, script, want, problem string }{
		{"works", `echo "$@"`, "dump --native --pid 4711\n", ""},
		{
			"is refused", "echo 'Error: Permission Denied: try again with sudo' >&2; echo more >&2; exit 1", "", "py-spy: it " +
				"may not look at the task: the executors' containers need the capability SYS_PTRACE, or kernel.yama.ptrace_scope=0",
		},
		{"says nothing", "exit 3", "", "py-spy: exit status 3"},
		{"hangs", "exec sleep 600", "", "py-spy did not end in time: ask again, or without --native"},
		{"writes more than is kept", "yes | head -c 1000000", strings.Repeat("y\n", maxNative/2) + "…", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			executable.Write(t, filepath.Join(folder, "py-spy"), "#!/bin/sh\n"+tt.script+"\n")
			limit := time.Minute
			if strings.Contains(tt.problem, "in time") {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			got, err := Native(ctx, 4711, folder)
			said := ""
			if err != nil {
				said = err.Error()
			}
			if got != tt.want || said != tt.problem {
				t.Errorf("%d bytes %.60q, error %q; want %d bytes, %q", len(got), got, said, len(tt.want), tt.problem)
			}
		})
	}
}

// TestPySpy: the installed py-spy writes the stacks of a Python process.
func TestPySpy(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("py-spy"); err != nil {
		t.Skip("missing: py-spy (pip install py-spy)")
	}
	python := exec.Command("python3", "-c",
		"import time\ndef waits(): time.sleep(600)\nprint('ready', flush=True)\nwaits()")
	out, err := python.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := python.Start(); err != nil {
		t.Fatal(err)
	}
	defer python.Wait()         //nolint:errcheck // it is killed
	defer python.Process.Kill() //nolint:errcheck // it may have ended
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if text, err := Native(t.Context(), python.Process.Pid, ""); err != nil || !strings.Contains(text, "waits") {
		t.Errorf("%q: %v", text, err)
	}
}

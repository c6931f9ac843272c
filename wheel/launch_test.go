package wheel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// write writes a file below a folder; a program has a first line that names an interpreter.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, path, content)
}

// TestLaunchInterpreter: the kernel runs the Python that pip installed it for, and not that of Jupyter.
func TestLaunchInterpreter(t *testing.T) {
	t.Parallel()
	found, err := exec.Command("python3", "-c",
		"import sys, venv; print(sys.executable, 'python%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Skip("missing: python3 with venv")
	}
	jupyter, own, _ := strings.Cut(strings.TrimSpace(string(found)), " ")
	apart := filepath.Join(t.TempDir(), "jupyter")
	if out, err := exec.CommandContext(t.Context(), jupyter, "-m", "venv", "--without-pip",
		apart).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	environment := filepath.Join(apart, "bin", "python")
	const lines = "#!/bin/sh\n"
	for _, tt := range []struct {
		name, jupyter string
		files         []string
		want          string // relative to the prefix, or absolute
	}{
		{"an environment", jupyter, []string{
			"pyvenv.cfg", "bin/python", "lib/python3.99/site-packages/tfcluster/x",
		}, "bin/python"},
		{"conda", jupyter, []string{"conda-meta/history", "bin/python"}, "bin/python"},
		{"for another Python of this prefix", jupyter, []string{
			"bin/python", "bin/python3.99", "lib/python3.99/site-packages/tfcluster/x",
		}, "bin/python3.99"},
		{"for a Python of PATH", jupyter, []string{
			"path/bin/python3.99", "lib/python3.99/dist-packages/tfcluster/x",
		}, "path/bin/python3.99"},
		{"in lib64", jupyter, []string{
			"path/bin/python3.99", "lib64/python3.99/site-packages/tfcluster/x",
		}, "path/bin/python3.99"},
		{"not for an environment of PATH", jupyter, []string{
			"path/pyvenv.cfg", "path/bin/python3.99", "lib/python3.99/site-packages/tfcluster/x",
		}, jupyter},
		{"for the newest of two", jupyter, []string{
			"bin/python3.98", "bin/python3.100", "lib/python3.98/site-packages/tfcluster/x",
			"lib/python3.100/site-packages/tfcluster/x",
		}, "bin/python3.100"},
		{"for Jupyter's Python", jupyter, []string{
			"bin/python3.99", "lib/python3.99/site-packages/tfcluster/x", "lib/" + own + "/site-packages/tfcluster/x",
		}, jupyter},
		{"for the Python behind Jupyter's environment", environment, []string{
			"path/bin/" + own, "lib/" + own + "/site-packages/tfcluster/x",
		}, "base"},
		{"for a Python that is not there", jupyter, []string{"lib/python3.99/site-packages/tfcluster/x"}, jupyter},
		{"without a package", jupyter, []string{"bin/python3.99", "lib/python3.99/site-packages/other/x"}, jupyter},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			prefix := filepath.Join(t.TempDir(), "a prefix")
			launch, err := os.ReadFile("launch.py")
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(prefix, "share/jupyter/kernels/tfcluster/launch.py")
			write(t, at, string(launch))
			write(t, filepath.Join(prefix, "bin/tfcluster"), lines+`for word; do printf '%s\n' "$word"; done`)
			for _, name := range tt.files {
				write(t, filepath.Join(prefix, name), lines)
			}
			cmd := exec.CommandContext(t.Context(), tt.jupyter, at, "-f", "connection.json")
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(prefix, "path/bin")+":/usr/bin:/bin")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			want := tt.want
			switch {
			case want == "base": // by any path: the interpreter that made the environment
				base, err := exec.CommandContext(t.Context(), jupyter, "-c",
					"import os, sys; print(os.path.join(sys.base_prefix, 'bin', 'python%d.%d' % sys.version_info[:2]))").Output()
				if err != nil {
					t.Fatal(err)
				}
				want = strings.TrimSpace(string(base))
			case !filepath.IsAbs(want):
				want = filepath.Join(prefix, want)
			}
			if got := string(out); got != "kernel\n-f\nconnection.json\n--python\n"+want+"\n" {
				t.Errorf("the program is called with\n%s, want %s", got, want)
			}
		})
	}
}

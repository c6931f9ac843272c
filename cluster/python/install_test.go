package python

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// TestInstallCommand: an environment of uv's has no pip, unless it was asked for.
func TestInstallCommand(t *testing.T) {
	t.Parallel()
	const uv = "home = /usr/bin\nimplementation = CPython\nuv = 0.13.9\nversion_info = 3.11.2\n"
	const venv = "home = /usr/bin\ninclude-system-site-packages = false\n" +
		"command = /usr/bin/python3 -m venv /home/uv = /env\n"
	for name, tt := range map[string]struct {
		config string
		pip    bool
		by     string // uv or pip
	}{
		"my uv": {uv, false, "uv"}, "seeded": {uv, true, "pip"}, "venv": {venv, true, "pip"}, "bare": {venv, false, "pip"},
		"system": {"", true, "pip"},
	} {
		prefix := filepath.Join(t.TempDir(), name)
		packages := filepath.Join(prefix, "lib", "python3.11", "site-packages")
		for _, dir := range []string{packages, filepath.Join(prefix, "bin")} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if tt.pip {
			if err := os.Mkdir(filepath.Join(packages, "pip"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if tt.config != "" {
			if err := os.WriteFile(filepath.Join(prefix, "pyvenv.cfg"), []byte(tt.config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		python := filepath.Join(prefix, "bin", "python")
		executable.Write(t, python, "")
		want, remove := ShellQuoted(python)+" -m pip install", ShellQuoted(python)+" -m pip uninstall"
		if tt.by == "uv" {
			want, remove = "uv pip install --python "+ShellQuoted(python), "uv pip uninstall --python "+ShellQuoted(python)
		}
		if got := InstallCommand(python); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if got := UninstallCommand(python); got != remove {
			t.Errorf("%s: %s, want %s", name, got, remove)
		}
	}
	if got := InstallCommand("/no/python"); got != "/no/python -m pip install" {
		t.Errorf("an interpreter that is gone: %s", got)
	}
}

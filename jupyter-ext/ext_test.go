package jupyterext

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const kernelJSON = `{"argv": ["/opt/tfcluster", "kernel", "-f", "{connection_file}"], "display_name": ` +
	`"Python 3 (TFCluster)", "language": "python"}`

// files returns the contents of the regular files below root, by relative path.
func files(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		found[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestInstallTwiceThenUninstall(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "a[b") // no pattern
	target := PrefixTarget(root)
	stale := filepath.Join(target.Data, "labextensions", extensionName, "static", "old.js")
	leftover := filepath.Join(target.Data, stagingPrefix+"1", "new", "x")
	for _, path := range []string{stale, leftover} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := target.Install("/opt/tfcluster", []byte(kernelJSON)); err != nil {
			t.Fatal(err)
		}
	}
	got := files(t, root)
	for path, want := range map[string]string{
		"share/jupyter/kernels/tfcluster/kernel.json":            kernelJSON,
		"share/jupyter/kernels/tfcluster/logo-svg.svg":           "<svg",
		"share/jupyter/kernels/tfcluster/logo-32x32.png":         "PNG",
		"share/jupyter/kernels/tfcluster/logo-64x64.png":         "PNG",
		"share/jupyter/labextensions/tfcluster-lab/package.json": "remoteEntry",
		"etc/jupyter/jupyter_server_config.py":                   "/opt/tfcluster",
	} {
		if !strings.Contains(got[path], want) {
			t.Errorf("%s does not contain %q: %q", path, want, got[path])
		}
		delete(got, path)
	}
	for path := range got {
		inside, ok := strings.CutPrefix(path, "share/jupyter/labextensions/tfcluster-lab/")
		if !ok || !strings.HasPrefix(inside, "static/") && !strings.HasPrefix(inside, "schemas/") ||
			strings.HasSuffix(path, "old.js") {
			t.Errorf("unexpected file %s", path)
		}
	}
	for range 2 {
		if err := target.Uninstall(); err != nil {
			t.Fatal(err)
		}
	}
	if left := files(t, root); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, dir := range []string{target.Data, target.Config} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

func TestUserTarget(t *testing.T) {
	for name, in := range map[string]struct {
		env  map[string]string
		want Target
	}{
		"plain": {nil, Target{"/home/ana/.local/share/jupyter", "/home/ana/.jupyter"}},
		"XDG":   {map[string]string{"XDG_DATA_HOME": "/x"}, Target{"/x/jupyter", "/home/ana/.jupyter"}},
		"Jupyter's variables": {
			map[string]string{"XDG_DATA_HOME": "/x", "JUPYTER_DATA_DIR": "/d", "JUPYTER_CONFIG_DIR": "/c"},
			Target{"/d", "/c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", "/home/ana")
			for _, key := range []string{"XDG_DATA_HOME", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR"} {
				t.Setenv(key, in.env[key])
			}
			got, err := UserTarget()
			if err != nil || got != in.want {
				t.Errorf("UserTarget() = %v, %v, want %v", got, err, in.want)
			}
		})
	}
}

// TestJupyterFindsInstall runs the real Jupyter, which must list the installed files.
func TestJupyterFindsInstall(t *testing.T) {
	t.Parallel()
	jupyter := findJupyter(t)
	root := t.TempDir()
	target := PrefixTarget(filepath.Join(root, "ours"))
	if err := target.Install("/opt/a {b}'s \"tfcluster\"", []byte(kernelJSON)); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, jupyter, args...)
		cmd.Env = append(os.Environ(), "HOME="+root, "JUPYTER_PATH="+target.Data, "JUPYTER_CONFIG_PATH="+target.Config,
			"JUPYTER_CONFIG_DIR="+filepath.Join(root, "user"), "JUPYTER_DATA_DIR="+filepath.Join(root, "data"))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("jupyter %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
		}
		return string(out) + stderr.String()
	}
	if out := run("labextension", "list"); !strings.Contains(out, "tfcluster-lab v0.1.0") || !strings.Contains(out, "OK") {
		t.Errorf("jupyter labextension list:\n%s", out)
	}
	if out := run("kernelspec", "list"); !strings.Contains(out, filepath.Join(target.Data, "kernels", "tfcluster")) {
		t.Errorf("jupyter kernelspec list:\n%s", out)
	}
	if out := run("server", "--show-config-json"); !strings.Contains(out, `/opt/a {{b}}`) {
		t.Errorf("jupyter server --show-config-json:\n%s", out)
	}
}

// findJupyter returns the jupyter command of the project's Python.
func findJupyter(t *testing.T) string {
	t.Helper()
	python := os.Getenv("TFCLUSTER_TEST_PYTHON")
	if python == "" {
		python = "../.venv/bin/python"
	}
	path, err := filepath.Abs(filepath.Join(filepath.Dir(python), "jupyter"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("missing: JupyterLab in the project's Python environment (%s)", path)
	}
	return path
}

// TestLockHoldsNoAddresses: the lock file has no registry's addresses, since users may have different
// registries.
func TestLockHoldsNoAddresses(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct {
			Resolved  string
			Integrity string
			Link      bool
		}
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if p.Resolved != "" {
			t.Errorf("%s has the address %s", name, p.Resolved)
		}
		if name != "" && p.Integrity == "" {
			t.Errorf("%s has no hash", name)
		}
	}
}

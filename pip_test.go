package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	packages "github.com/tfcluster/tfcluster/cluster/python"
)

// pipInstalled is this program in an environment as pip leaves it after the wheel's installation.
type pipInstalled struct{ prefix, home string }

func newPipInstalled(t *testing.T) pipInstalled {
	t.Helper()
	p := pipInstalled{filepath.Join(t.TempDir(), "my env"), t.TempDir()}
	packages := filepath.Join(p.prefix, "lib", "site-packages")
	facts := `{"Executable": "` + filepath.Join(p.prefix, "bin", "python") + `", "Prefix": "` + p.prefix +
		`", "Purelib": "` + packages + `", "UserSite": "` + packages + `", "IPykernel": true}`
	for name, content := range map[string]string{
		"pyvenv.cfg": "", "bin/python": "#!/bin/sh\necho '" + facts + "'\n",
		"share/jupyter/kernels/tfcluster/launch.py":              "the wheel's",
		"share/jupyter/labextensions/tfcluster-lab/package.json": "the wheel's",
		"lib/site-packages/tfcluster/_program.txt":               "pip\n",
	} {
		path := filepath.Join(p.prefix, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		executable.Write(t, path, content)
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(p.prefix, "bin", "tfcluster"), program)
	return p
}

// run runs the program of the environment.
func (p pipInstalled) run(t *testing.T, args ...string) (output string, ok bool) {
	t.Helper()
	return p.runWith(t, nil, args...)
}

// runWith runs the program of the environment with more variables.
func (p pipInstalled) runWith(t *testing.T, env []string, args ...string) (output string, ok bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.prefix, "bin", "tfcluster"), args...)
	cmd.Env = append(
		[]string{"TFCLUSTER_TEST_MAIN=1", "HOME=" + p.home, "XDG_RUNTIME_DIR=" + p.home, "PATH=/usr/bin:/bin"}, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err == nil
}

// files returns the files below a folder with their contents.
func files(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "tfcluster" {
			return err
		}
		b, err := os.ReadFile(path)
		found[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestInstallBesidePip: where pip has installed everything, install removes what an earlier one wrote, and both
// verbs leave the wheel's files alone.
func TestInstallBesidePip(t *testing.T) {
	t.Parallel()
	p := newPipInstalled(t)
	before := files(t, p.prefix)
	python := fakePython(t, `{"Executable": "/fake/python3", "Prefix": "/fake", "UserSite": "`+
		filepath.Join(p.home, "site")+`", "IPykernel": true}`)
	if _, stderr, code := program(t, "", []string{"HOME=" + p.home}, "install", "--user", "--python", python); code != 0 {
		t.Fatal(stderr)
	}
	if _, err := os.Stat(filepath.Join(p.home, ".local/share/jupyter/kernels/tfcluster/kernel.json")); err != nil {
		t.Fatal(err)
	}
	if out, ok := p.run(t, "install"); !ok || !strings.Contains(out, "pip has installed") ||
		!strings.Contains(out, "removed what an earlier tfcluster install wrote: "+filepath.Join(p.home, ".jupyter")) {
		t.Errorf("install: %s", out)
	}
	for _, left := range []string{
		".local/share/jupyter/kernels", ".local/share/jupyter/labextensions", ".jupyter/jupyter_server_config.py",
	} {
		if _, err := os.Stat(filepath.Join(p.home, left)); err == nil {
			t.Errorf("%s is left", left)
		}
	}
	remove := packages.UninstallCommand(filepath.Join(p.prefix, "bin", "python")) + " tfcluster"
	if out, ok := p.run(t, "uninstall", "--prefix", p.prefix); ok || !strings.Contains(out, remove) {
		t.Errorf("uninstall of pip's files: %s", out)
	}
	if out, ok := p.run(t, "uninstall"); ok || !strings.Contains(out, remove) {
		t.Errorf("uninstall for the user: %s", out)
	}
	for option, setting := range map[string]string{
		"--python": "TFCLUSTER_PYTHON=", "--tensorboard-python": "TFCLUSTER_TENSORBOARD_PYTHON=",
	} {
		if out, ok := p.run(t, "install", option, python); ok || !strings.Contains(out, setting) {
			t.Errorf("install %s: %s", option, out)
		}
	}
	if _, stderr, code := program(t, "", nil, "install", "--prefix", p.prefix, "--python", python); code != 1 ||
		!strings.Contains(stderr, remove) {
		t.Errorf("install of another program over pip's files: %d %s", code, stderr)
	}
	after := files(t, p.prefix)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was %q, is %q", name, content, after[name])
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d files are %d", len(before), len(after))
	}
}

// TestRemains: what this program's own install --user wrote is no remains, what another's wrote is.
func TestRemains(t *testing.T) {
	p := newPipInstalled(t)
	for _, key := range []string{"JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "XDG_DATA_HOME"} {
		t.Setenv(key, "")
	}
	t.Setenv("HOME", p.home)
	w := ofWheel(filepath.Join(p.prefix, "bin", "tfcluster"))
	if w == nil || w.python != filepath.Join(p.prefix, "bin", "python") {
		t.Fatalf("pip's program is %+v", w)
	}
	if got := ofWheel(filepath.Join(p.home, "bin", "tfcluster")); got != nil {
		t.Errorf("another program is %+v", got)
	}
	if got := w.remains(); len(got) > 0 {
		t.Errorf("at first: %v", got)
	}
	if out, ok := p.run(t, "install", "--user"); !ok {
		t.Fatal(out)
	}
	if got := w.remains(); len(got) > 0 {
		t.Errorf("after its own: %v", got)
	}
	spec := filepath.Join(p.home, ".local/share/jupyter/kernels/tfcluster/kernel.json")
	if out, ok := p.run(t, "install"); !ok {
		t.Fatal(out)
	}
	if _, err := os.Stat(spec); err != nil {
		t.Errorf("install removed what its own install --user wrote: %v", err)
	}
	python := fakePython(t, `{"Executable": "/fake/python3", "Prefix": "/fake", "UserSite": "`+
		filepath.Join(p.home, "site")+`", "IPykernel": true}`)
	if _, stderr, code := program(t, "", []string{"HOME=" + p.home}, "install", "--user", "--python", python); code != 0 {
		t.Fatal(stderr)
	}
	if got := w.remains(); len(got) != 3 {
		t.Errorf("after another's: %v", got)
	}
}

// TestInstallForAnotherJupyter: the kernel that pip installed, for a Jupyter in another environment.
func TestInstallForAnotherJupyter(t *testing.T) {
	t.Parallel()
	p := newPipInstalled(t)
	other := t.TempDir()
	if out, ok := p.run(t, "install", "--prefix", other); !ok {
		t.Fatal(out)
	}
	spec, err := os.ReadFile(filepath.Join(other, "share/jupyter/kernels/tfcluster/kernel.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{filepath.Join(p.prefix, "bin", "tfcluster"), filepath.Join(p.prefix, "bin", "python")} {
		if !strings.Contains(string(spec), `"`+want+`"`) {
			t.Errorf("kernel.json has no %s: %s", want, spec)
		}
	}
	if out, ok := p.run(t, "uninstall", "--prefix", other); !ok || len(files(t, other)) > 0 {
		t.Errorf("uninstall: %s, left %v", out, files(t, other))
	}
}

// TestPythonWithPackage: below a folder that is no environment, the folder of the package names its Python.
func TestPythonWithPackage(t *testing.T) {
	prefix, other, environment := filepath.Join(t.TempDir(), "[user]"), t.TempDir(), t.TempDir()
	t.Setenv("PATH", filepath.Join(environment, "bin")+":relative:"+filepath.Join(other, "bin"))
	write := func(path string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		executable.Write(t, path, "#!/bin/sh\n")
		return path
	}
	write(filepath.Join(environment, "pyvenv.cfg"))
	write(filepath.Join(environment, "bin/python3.98"))
	write(filepath.Join(prefix, "share/jupyter/kernels/tfcluster/launch.py"))
	write(filepath.Join(prefix, "lib/python3.98/site-packages/tfcluster/__init__.py"))
	python := func() string { return ofWheel(filepath.Join(prefix, "bin", "tfcluster")).python }
	if got := python(); got != "" {
		t.Errorf("without that Python: %s", got)
	}
	older := write(filepath.Join(other, "bin/python3.98"))
	if got := python(); got != older {
		t.Errorf("%s, want %s", got, older)
	}
	write(filepath.Join(prefix, "lib64/python3.100/dist-packages/tfcluster/__init__.py"))
	newer := write(filepath.Join(prefix, "bin/python3.100"))
	if got := python(); got != newer {
		t.Errorf("%s, want %s", got, newer)
	}
}

// TestActiveEnvironments: in a shell an environment that the user has activated comes before the program's own, and
// conda's base, which conda activates by itself, does not.
func TestActiveEnvironments(t *testing.T) {
	t.Parallel()
	p := newPipInstalled(t)
	other := t.TempDir()
	executable.Write(t, filepath.Join(other, "python3"), "#!/bin/sh\nexit 1\n")
	own, active := filepath.Join(p.prefix, "bin", "python"), filepath.Join(other, "python3")
	project := t.TempDir()
	behind := filepath.Join(project, "bin", "python3")
	if err := os.Mkdir(filepath.Dir(behind), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(active, behind); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		env  []string
		want string
	}{
		"no environment":            {nil, own},
		"conda's base":              {[]string{"CONDA_PREFIX=/conda", "CONDA_DEFAULT_ENV=base"}, own},
		"an environment":            {[]string{"VIRTUAL_ENV=/venv"}, active},
		"an environment of conda's": {[]string{"CONDA_PREFIX=/conda/envs/mine", "CONDA_DEFAULT_ENV=mine"}, active},
		"an environment in " +
			"the base": {[]string{"VIRTUAL_ENV=/venv", "CONDA_PREFIX=/conda", "CONDA_DEFAULT_ENV=base"}, active},
		"the base, named": {
			[]string{"CONDA_PREFIX=/conda", "CONDA_DEFAULT_ENV=base", "TFCLUSTER_PYTHON=python3"}, active,
		},
		"behind the one of uvx": {[]string{"VIRTUAL_ENV=" + project}, behind},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _ := p.runWith(t, append(tt.env, "PATH="+other+":"+filepath.Dir(behind)+":/usr/bin:/bin"), "doctor")
			if !strings.Contains(out, " "+tt.want+" ") {
				t.Errorf("doctor does not ask %s:\n%s", tt.want, out)
			}
		})
	}
}

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// site is a user's folder for packages.
type site struct {
	t         *testing.T
	home, dir string
}

func newSite(t *testing.T) site {
	t.Helper()
	home := t.TempDir()
	return site{t, home, filepath.Join(home, "site-packages")}
}

// run runs install or uninstall for a Python that finds, as tensorflowonspark, a package and a distribution.
func (s site) run(verb, packageAt, distributionAt string, args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	python := fakePython(s.t, fmt.Sprintf(`{"Executable": "/fake/python3", "Prefix": "/fake", "UserSite": %q, `+
		`"IPykernel": true, "TensorFlowOnSpark": {"Package": %q, "Distribution": %q}}`, s.dir, packageAt, distributionAt))
	return program(s.t, "", []string{"HOME=" + s.home}, append([]string{verb, "--python", python}, args...)...)
}

// names are the files of the folder, but for the package tfcluster.
func (s site) names() map[string]string {
	s.t.Helper()
	found := map[string]string{}
	for path, content := range files(s.t, s.dir) {
		if name, err := filepath.Rel(s.dir, path); err == nil && !strings.HasPrefix(name, "tfcluster/") {
			found[name] = content
		}
	}
	return found
}

// write writes a file below the folder.
func (s site) write(name, content string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// TestTensorFlowOnSpark: install writes the package and its distribution, again the same, and uninstall removes both.
func TestTensorFlowOnSpark(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	out, stderr, code := s.run("install", "", "", "--tensorflowonspark")
	if code != 0 || !strings.Contains(out, "package tensorflowonspark: "+s.dir) {
		t.Fatalf("install: exit code %d: %s%s", code, out, stderr)
	}
	written := s.names()
	info := "tfcluster_tensorflowonspark-" + version + ".dist-info/"
	want := []string{info + "INSTALLER", info + "METADATA", info + "RECORD", info + "WHEEL"}
	for module := range strings.FieldsSeq("__init__ TFCluster TFNode TFParallel TFSparkNode compat dfutil util") {
		want = append(want, "tensorflowonspark/"+module+".py")
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(written)); !slices.Equal(got, want) {
		t.Errorf("it wrote %q, want %q", got, want)
	}
	for _, name := range want {
		if !strings.Contains(written[info+"RECORD"], name+",") {
			t.Errorf("RECORD has no %s:\n%s", name, written[info+"RECORD"])
		}
	}
	if !strings.Contains(written[info+"METADATA"], "\nName: tfcluster-tensorflowonspark\nVersion: "+version+"\n") {
		t.Errorf("METADATA: %s", written[info+"METADATA"])
	}
	// Another version was there, and the package with a file that this one does not have.
	s.write("tfcluster_tensorflowonspark-0.0.1.dist-info/RECORD", "")
	s.write("tensorflowonspark/old.py", "")
	ours := filepath.Join(s.dir, "tensorflowonspark")
	if _, stderr, code := s.run("install", ours, "", "--tensorflowonspark"); code != 0 || !maps.Equal(s.names(), written) {
		t.Errorf("install again: exit code %d: %s\n%v", code, stderr, s.names())
	}
	if _, stderr, code := s.run("uninstall", ours, "", "--tensorflowonspark"); code != 0 || len(s.names()) > 0 {
		t.Errorf("uninstall of it alone: exit code %d: %s, left %v", code, stderr, s.names())
	}
	if _, err := os.Stat(filepath.Join(s.dir, "tfcluster/__init__.py")); err != nil {
		t.Errorf("uninstall of it alone: %v", err)
	}
	if _, stderr, code := s.run("install", "", "", "--tensorflowonspark"); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if _, stderr, code := s.run("uninstall", ours, ""); code != 0 || len(files(t, s.home)) > 0 {
		t.Errorf("uninstall: exit code %d: %s, left %v", code, stderr, files(t, s.home))
	}
}

// TestTensorFlowOnSparkRefused: where the real one is, or the folder cannot be known, nothing is written, and one line
// says what to do.
func TestTensorFlowOnSparkRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		packageAt, distributionAt, file string
		args                            []string
		want                            string
	}{
		"a distribution": {
			"/lib/tensorflowonspark", "/lib/", "", nil, "is installed in /lib/: to have tfcluster's modules under its name, " +
				"remove it (/fake/python3 -m pip uninstall tensorflowonspark) and repeat the command",
		},
		"a package elsewhere": {"/lib/tensorflowonspark", "", "", nil, "/lib/tensorflowonspark was not written by "},
		"a package there":     {"", "", "tensorflowonspark/__init__.py", nil, "site-packages/tensorflowonspark was not "},
		"another prefix":      {"", "", "", []string{"--prefix", "/other"}, "is not the Python of --prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			if tt.file != "" {
				s.write(tt.file, "its own\n")
			}
			before := files(t, s.home)
			_, stderr, code := s.run("install", tt.packageAt, tt.distributionAt, append(tt.args, "--tensorflowonspark")...)
			if code != 1 || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			if _, stderr, code = s.run("uninstall", tt.packageAt, "", "--tensorflowonspark"); code != 0 {
				t.Errorf("uninstall: exit code %d: %s", code, stderr)
			}
			if after := files(t, s.home); !maps.Equal(after, before) {
				t.Errorf("it was %v, is %v", before, after)
			}
		})
	}
}

// TestTensorFlowOnSparkNotWritable: a folder that the user cannot write is named, and another step.
func TestTensorFlowOnSparkNotWritable(t *testing.T) {
	t.Parallel()
	a, _ := twoUsers(t)
	dir := t.TempDir() // root's
	python := filepath.Join(filepath.Dir(a.program), "python3")
	facts := `{"Executable": "/fake/python3", "Prefix": "/fake", "UserSite": "` + dir + `/site", "IPykernel": true}`
	if err := os.WriteFile(python, []byte("#!/bin/sh\necho '"+facts+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, code := a.run("", nil, "install", "--python", python, "--tensorflowonspark")
	if code != 1 || !strings.Contains(out, "write the package to "+dir) || strings.Count(out, "\n") != 1 ||
		!strings.Contains(out, unix.EACCES.Error()+"; repeat the command as a user that can write this folder") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestTensorFlowOnSparkBesidePip: by a program that pip installed, the package is beside pip's tfcluster.
func TestTensorFlowOnSparkBesidePip(t *testing.T) {
	t.Parallel()
	p := newPipInstalled(t)
	before := files(t, p.prefix)
	if out, ok := p.run(t, "install", "--tensorflowonspark"); !ok || !strings.Contains(out, "package tensorflowonspark") {
		t.Fatal(out)
	}
	if _, err := os.Stat(filepath.Join(p.prefix, "lib/site-packages/tensorflowonspark/TFNode.py")); err != nil {
		t.Error(err)
	}
	if out, ok := p.run(t, "uninstall"); ok || !strings.Contains(out, "pip installed tfcluster below") {
		t.Errorf("uninstall: %s", out)
	}
	if after := files(t, p.prefix); !maps.Equal(after, before) {
		t.Errorf("%d files are %d", len(before), len(after))
	}
}

// TestTensorFlowOnSparkByPip: in a real environment programs import the package, and pip lists and removes it whole.
func TestTensorFlowOnSparkByPip(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: makes an environment")
	}
	base, err := filepath.Abs(".venv/bin/python")
	if _, missing := os.Stat(base); err != nil || missing != nil {
		t.Skip("missing: .venv (make prepare)")
	}
	prefix := filepath.Join(t.TempDir(), "my env")
	said := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = []string{
			"TFCLUSTER_TEST_MAIN=1", "HOME=" + filepath.Dir(prefix), "PATH=/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK=1",
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	said(base, "-m", "venv", prefix)
	python := filepath.Join(prefix, "bin", "python")
	packages := strings.TrimSpace(said(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
	s := site{t, "", packages}
	s.write("ipykernel/__init__.py", "")
	said(os.Args[0], "install", "--sys-prefix", "--python", python)
	before := files(t, packages)
	said(os.Args[0], "install", "--sys-prefix", "--python", python, "--tensorflowonspark")
	said(os.Args[0], "install", "--sys-prefix", "--python", python, "--tensorflowonspark") // it knows its own
	use := "from tensorflowonspark import TFCluster, TFNode, TFParallel; import tensorflowonspark.compat; " +
		"from tfcluster.tfos import TFCluster as ours; assert TFCluster.run is ours.run; print(TFCluster.InputMode.SPARK)"
	if got := said(python, "-c", use); got != "1\n" {
		t.Errorf("the import prints %q", got)
	}
	if got := said(python, "-m", "pip", "list"); !strings.Contains(got, "tfcluster-tensorflowonspark") {
		t.Errorf("pip list: %s", got)
	}
	said(python, "-m", "pip", "check")
	said(python, "-m", "pip", "uninstall", "-y", "tfcluster-tensorflowonspark")
	for path := range files(t, packages) {
		if _, was := before[path]; !was && !strings.Contains(path, "__pycache__") {
			t.Errorf("pip left %s", path)
		}
	}
	if _, err := os.Stat(filepath.Join(packages, "tensorflowonspark")); err == nil {
		t.Error("pip left the folder of the package")
	}
}

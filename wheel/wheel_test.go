package wheel_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel"
)

var update = flag.Bool("update", false, "write contents.txt")

const (
	epoch = "1700000000"
	arch  = "x86_64"
)

// built is the wheel for x86_64, which the tests share.
var built = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "tfcluster-wheel")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path, err := build("..", dir, "wheel", arch)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// buildError is what hatchling wrote before it failed.
type buildError struct {
	err  error
	said string
}

func (e *buildError) Error() string { return "hatchling: " + e.err.Error() + "\n" + e.said }

// build builds a distribution of a source tree into dir, and returns its path.
func build(root, dir, kind, arch string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	hatchling, err := filepath.Abs("../.venv-wheel/bin/hatchling")
	if err != nil {
		return "", err
	}
	zig, err := filepath.Abs("../build/zig")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, hatchling, "build", "-t", kind, "-d", dir)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch, "TFCLUSTER_WHEEL_ARCH="+arch, "ZIG_GLOBAL_CACHE_DIR="+zig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", &buildError{err, string(out)}
	}
	found, err := filepath.Glob(filepath.Join(dir, "tfcluster-*"))
	if err != nil || len(found) != 1 {
		return "", &buildError{err, "it wrote " + strings.Join(found, ", ")}
	}
	return found[0], nil
}

// wheel returns the wheel for x86_64.
func wheel(t *testing.T) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("short: builds the wheel")
	}
	if _, err := os.Stat("../.venv-wheel/bin/hatchling"); err != nil {
		t.Skip("missing: .venv-wheel (make prepare)")
	}
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t *testing.T, wheel []byte) *zip.Reader {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// read returns the file of a wheel whose name ends in suffix.
func read(t *testing.T, z *zip.Reader, suffix string) []byte {
	t.Helper()
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, suffix) {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Fatalf("the wheel has no file %s", suffix)
	return nil
}

// version is that of the file VERSION.
func version(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestContents: the wheel has the listed files and no other, of one time; only the program can be executed.
func TestContents(t *testing.T) {
	t.Parallel()
	z := open(t, wheel(t))
	var names []string
	for _, f := range z.File {
		names = append(names, strings.Replace(f.Name, "tfcluster-"+version(t), "tfcluster-VERSION", 1))
		if want := time.Unix(1700000000, 0).UTC(); f.Modified.Sub(want).Abs() > 2*time.Second {
			t.Errorf("%s is of %v, want %v", f.Name, f.Modified, want)
		}
		if program := strings.HasSuffix(f.Name, "/scripts/tfcluster"); program != (f.Mode().Perm()&0o111 != 0) {
			t.Errorf("%s has mode %v", f.Name, f.Mode())
		}
		if strings.HasSuffix(f.Name, ".pth") {
			t.Errorf("%s runs at each start of Python", f.Name)
		}
	}
	slices.Sort(names)
	got := strings.Join(names, "\n") + "\n"
	if *update {
		if err := os.WriteFile("contents.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("contents.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the wheel has\n%s\nwant what contents.txt lists; if this is right: go test ./wheel -run Contents -update",
			got)
	}
}

// TestSourcesGiveTheSameWheel: the sdist is the same twice, and a build of it, in another folder, gives the wheel that
// the checkout gives, byte for byte.
func TestSourcesGiveTheSameWheel(t *testing.T) {
	t.Parallel()
	want := wheel(t)
	var sdists [2][]byte
	unpacked := t.TempDir()
	for i := range sdists {
		path, err := build("..", t.TempDir(), "sdist", "")
		if err != nil {
			t.Fatal(err)
		}
		if sdists[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", path, "-C", unpacked).CombinedOutput(); err != nil {
				t.Fatalf("tar: %v\n%s", err, out)
			}
		}
	}
	if !bytes.Equal(sdists[0], sdists[1]) {
		t.Error("two sdists differ")
	}
	path, err := build(filepath.Join(unpacked, "tfcluster-"+version(t)), t.TempDir(), "wheel", arch)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	theirs, ours := open(t, got), open(t, want)
	for i, f := range ours.File {
		if i >= len(theirs.File) || theirs.File[i].FileHeader.Name != f.Name || theirs.File[i].CRC32 != f.CRC32 {
			t.Fatalf("two builds differ, first in %s", f.Name)
		}
	}
	t.Error("two builds differ in the archive alone")
}

// TestMetadata: what pip and Jupyter read.
func TestMetadata(t *testing.T) {
	t.Parallel()
	z := open(t, wheel(t))
	metadata := string(read(t, z, "/METADATA"))
	for _, want := range []string{
		"Version: " + version(t), "License-Expression: Apache-2.0", "License-File: LICENSE", "Requires-Python: >=3.11",
		"Requires-Dist: cloudpickle", "Requires-Dist: ipykernel", "Requires-Dist: jupyter-server-proxy>=4.2",
		"Requires-Dist: pyarrow", "Provides-Extra: jax", "Provides-Extra: spark", "Provides-Extra: tensorflow",
		"Provides-Extra: torch", "Description-Content-Type: text/markdown",
	} {
		if !strings.Contains(metadata, "\n"+want+"\n") {
			t.Errorf("METADATA has no line %q", want)
		}
	}
	if got, want := string(read(t, z, "/entry_points.txt")),
		"[jupyter_serverproxy_servers]\ntfcluster = tfcluster.serverproxy:broker\n"; got != want {
		t.Errorf("entry points: %q, want %q", got, want)
	}
	if got := string(read(t, z, "/WHEEL")); !strings.Contains(got, "\nTag: py3-none-manylinux_2_17_"+arch+"\n") {
		t.Errorf("WHEEL: %s", got)
	}
	var bom struct {
		BomFormat  string
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(read(t, z, "/sboms/tfcluster.cdx.json"), &bom); err != nil || bom.BomFormat != "CycloneDX" {
		t.Fatalf("the SBOM: %v, %q", err, bom.BomFormat)
	}
	for _, want := range []string{"std", "google.golang.org/grpc", "github.com/NVIDIA/go-nvml"} {
		if i := slices.IndexFunc(bom.Components,
			func(c struct{ Name, Version string }) bool { return c.Name == want && c.Version != "" }); i < 0 {
			t.Errorf("the SBOM has no %s", want)
		}
	}
	licenses := string(read(t, z, "/licenses/wheel/licenses.txt"))
	for _, c := range bom.Components {
		if c.Name != "std" && !strings.Contains(licenses, "\n"+c.Name+"\n") {
			t.Errorf("licenses.txt has none of %s: run make licenses", c.Name)
		}
	}
}

// TestExtras: an extra has the packages of its file of requirements, and allows the versions that the tests use.
func TestExtras(t *testing.T) {
	t.Parallel()
	project, err := os.ReadFile("../pyproject.toml")
	if err != nil {
		t.Fatal(err)
	}
	for extra, in := range map[string]struct{ file, only string }{
		"spark": {"spark", ""}, "torch": {"torch", "torch"}, "jax": {"jax", ""},
		"tensorflow": {"main", "tensorflow keras tensorboard setuptools"},
	} {
		_, list, found := strings.Cut(string(project), "\n"+extra+" = [")
		list, _, closed := strings.Cut(list, "]")
		if !found || !closed {
			t.Fatalf("pyproject.toml has no extra %s", extra)
		}
		names := map[string]bool{}
		for _, quoted := range regexp.MustCompile(`"([A-Za-z0-9_-]+)[^"]*"`).FindAllStringSubmatch(list, -1) {
			names[quoted[1]] = true
		}
		b, err := os.ReadFile("../requirements/" + in.file + ".in")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^([A-Za-z0-9_-]+)`).FindAllStringSubmatch(string(b), -1) {
			if in.only != "" && !slices.Contains(strings.Fields(in.only), m[1]) {
				continue
			}
			if !names[m[1]] {
				t.Errorf("the extra %s has no %s, which requirements/%s.in has", extra, m[1], in.file)
			}
			delete(names, m[1])
		}
		if len(names) > 0 {
			t.Errorf("the extra %s also has %v", extra, names)
		}
	}
}

// TestOneVersion: the extension has the version of the program and the wheel.
func TestOneVersion(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../jupyter-ext/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var extension struct{ Version string }
	if err := json.Unmarshal(b, &extension); err != nil {
		t.Fatal(err)
	}
	// PEP 440, without a local version.
	number := regexp.MustCompile(`^(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?$`)
	if !number.MatchString(version(t)) || !strings.HasPrefix(version(t), extension.Version) {
		t.Errorf("VERSION is %s, want one as in PEP 440; jupyter-ext/package.json has %s", version(t), extension.Version)
	}
}

// TestKernelspec: but for the way that finds the program, the wheel's is the one that `tfcluster install` writes.
func TestKernelspec(t *testing.T) {
	t.Parallel()
	got, err := os.ReadFile("kernel.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := kernel.NewSpec("Python 3 (TFCluster)",
		[]string{"python", "{resource_dir}/launch.py", "-f", "{connection_file}"}, nil).JSON()
	if err != nil || string(got) != string(want) {
		t.Errorf("kernel.json:\n%s\nwant:\n%s\n%v", got, want, err)
	}
}

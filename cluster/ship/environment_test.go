package ship

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// venv creates a small virtual environment with one module.
func venv(t testing.TB, text string) (dir, version string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("missing: python3")
	}
	dir = filepath.Join(t.TempDir(), "env")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Skipf("missing: python3's venv: %v: %s", err, out)
	}
	out, err := exec.Command(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatal(err)
	}
	version = strings.TrimSpace(string(out))
	write(t, filepath.Join(dir, "lib", "python"+version, "site-packages", "brought.py"), text)
	return dir, version
}

// counting returns a function that fetches from a Store and counts its calls.
func counting(d *Store, e *clusterpb.Environment, times *atomic.Int32) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		times.Add(1)
		f, err := d.Open(e.GetPacked().GetContent().GetSha256())
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	}
}

func quiet(string) {}

// TestVenv: a folder is packed once, unpacked once for all agents of a host, and has the host's
// interpreter as its base.
func TestVenv(t *testing.T) {
	t.Parallel()
	dir, version := venv(t, "here = 42")
	cache := t.TempDir()
	var read atomic.Int64
	pack := func() (*Store, *clusterpb.Environment) {
		d := NewStore(filepath.Join(t.TempDir(), "depot"), cache)
		t.Cleanup(func() { d.Close() })
		e, err := d.Environment(t.Context(), dir, func(n int64) { read.Add(n) })
		if err != nil {
			t.Fatal(err)
		}
		return d, e
	}
	d, e := pack()
	if e.GetPython() != version || e.GetOwn() {
		t.Errorf("Environment returned %v", e)
	}
	before := read.Load()
	if _, again := pack(); again.GetPacked().GetContent().GetSha256() != e.GetPacked().GetContent().GetSha256() ||
		read.Load() != before {
		t.Errorf("it was packed again: %v", again)
	}
	if later := NewStore(d.dir, cache); later.Packed().GetPython() != version {
		t.Errorf("the next driver has %v", later.Packed())
	} else {
		later.Close()
	}
	s := &Environments{Dir: filepath.Join(t.TempDir(), "environments"), Host: "host-a"}
	var fetched atomic.Int32
	var agents sync.WaitGroup
	for range 4 {
		agents.Go(func() {
			held, err := s.Take(t.Context(), e, nil, counting(d, e, &fetched), quiet)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { held.Close() }) // as long as an agent uses it
			out, err := exec.Command(held.Python, "-c",
				"import brought, json, sys; print(brought.here, sys.prefix != sys.base_prefix)").CombinedOutput()
			if string(out) != "42 True\n" {
				t.Errorf("%s prints %q, %v", held.Python, out, err)
			}
		})
	}
	agents.Wait()
	if n := fetched.Load(); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir, "*aside*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestArchive also covers an environment in a top-level folder of its archive, with the
// absolute links that venv-pack writes.
func TestArchive(t *testing.T) {
	t.Parallel()
	dir, version := venv(t, "here = 43")
	archive := filepath.Join(t.TempDir(), "packed.tar.gz")
	if out, err := exec.Command("tar", "-czf", archive, "-C", filepath.Dir(dir), "env").CombinedOutput(); err != nil {
		t.Skipf("missing: tar: %v: %s", err, out)
	}
	d := NewStore(filepath.Join(t.TempDir(), "depot"), t.TempDir())
	defer d.Close()
	e, err := d.Environment(t.Context(), archive, func(int64) {})
	if err != nil || e.GetPython() != version || e.GetOwn() {
		t.Fatalf("Environment returned %v, %v", e, err)
	}
	var fetched atomic.Int32
	s := &Environments{Dir: t.TempDir(), Host: "host-a"}
	held, err := s.Take(t.Context(), e, nil, counting(d, e, &fetched), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if out, err := exec.Command(held.Python, "-c",
		"import brought; print(brought.here)").CombinedOutput(); string(out) != "43\n" {
		t.Errorf("python prints %q, %v", out, err)
	}
}

// TestOwnInterpreter: an environment of conda-pack needs no interpreter of the host.
func TestOwnInterpreter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "lib/python3.7/os.py"), "")
	python := write(t, filepath.Join(dir, "bin/python3.7"), "#!/bin/sh\necho \"$@\" >\"$(dirname \"$0\")/unpacked\"\n")
	write(t, filepath.Join(dir, "bin/conda-unpack"), "")
	if err := os.Chmod(python, 0o755); err != nil {
		t.Fatal(err)
	}
	d := NewStore(filepath.Join(t.TempDir(), "depot"), t.TempDir())
	defer d.Close()
	e, err := d.Environment(t.Context(), dir, func(int64) {})
	if err != nil || e.GetPython() != "3.7" || !e.GetOwn() {
		t.Fatalf("Environment returned %v, %v", e, err)
	}
	var fetched atomic.Int32
	s := &Environments{Dir: t.TempDir(), Host: "host-a"}
	held, err := s.Take(t.Context(), e, nil, counting(d, e, &fetched), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	unpacked := filepath.Join(filepath.Dir(held.Python), "unpacked")
	if b, err := os.ReadFile(unpacked); strings.TrimSpace(string(b)) != filepath.Join(filepath.Dir(held.Python),
		"conda-unpack") {
		t.Errorf("conda-unpack: %q, %v", b, err)
	}
}

// TestMissingVersion: if an executor lacks the Python version, Take fails before it fetches
// anything and names the versions found.
func TestMissingVersion(t *testing.T) {
	t.Parallel()
	e := &clusterpb.Environment{Python: "3.99", Packed: &clusterpb.Shipped{
		Name: "env.tgz", Content: &clusterpb.Blob{Sha256: strings.Repeat("a", 64)},
	}}
	s := &Environments{Dir: t.TempDir(), Host: "host-a"}
	_, err := s.Take(t.Context(), e, nil, func(context.Context, io.Writer) error {
		t.Error("it was fetched")
		return nil
	}, quiet)
	if err == nil || !strings.Contains(err.Error(), "--venv env.tgz is for Python 3.99, which host-a does not have") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is %v", err)
	}
}

// TestNoEnvironment: Environment rejects folders and archives that are not environments.
func TestNoEnvironment(t *testing.T) {
	t.Parallel()
	folder := filepath.Dir(write(t, filepath.Join(t.TempDir(), "folder", "x"), "x"))
	archive := write(t, filepath.Join(t.TempDir(), "x.tar.gz"), "x")
	var odd bytes.Buffer // a folder with the name of a file that is read
	w := zip.NewWriter(&odd)
	if _, err := w.Create("pyvenv.cfg/"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	zipped := write(t, filepath.Join(t.TempDir(), "x.zip"), odd.String())
	for path, want := range map[string]string{
		folder: "not a Python environment", archive: "not a gzip file", archive + "x": "no such file",
		zipped: "not a Python environment",
	} {
		d := NewStore(filepath.Join(t.TempDir(), "depot"), t.TempDir())
		if _, err := d.Environment(t.Context(), path, func(int64) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestUnusedEnvironmentsAreRemoved: least recently used first, never one in use; a removed one
// is fetched again, and a wrong content is rejected.
func TestUnusedEnvironmentsAreRemoved(t *testing.T) {
	t.Parallel()
	s := &Environments{Dir: t.TempDir(), Host: "host-a", Most: 3 << 20}
	take := func(i int) (*Environment, error) {
		data := tarWith(t, map[string]string{"bin/python3.7": "", "lib/python3.7/x": strings.Repeat(fmt.Sprint(i), 1<<20)})
		return s.Take(t.Context(), ownOf(data), nil,
			func(_ context.Context, w io.Writer) error { _, err := w.Write(data); return err }, quiet)
	}
	var all []*Environment
	for i := range 5 {
		held, err := take(i)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, held)
		if i > 0 {
			held.Close() // the first stays in use
		}
		old := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(held.lock.Name(), old, old); err != nil {
			t.Fatal(err)
		}
	}
	last, err := take(5)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	for i, want := range []bool{true, false, false, false, true} {
		if exists(all[i].Python) != want {
			t.Errorf("environment %d exists: %v", i, !want)
		}
	}
	again, err := take(1)
	if err != nil || !exists(again.Python) {
		t.Fatalf("it is not fetched again: %v", err)
	}
	again.Close()
	all[0].Close()
	data := tarWith(t, map[string]string{"bin/python3.7": ""})
	_, err = s.Take(t.Context(), ownOf(data), nil,
		func(_ context.Context, w io.Writer) error { _, err := w.Write(data[1:]); return err }, quiet)
	if err == nil || !strings.Contains(err.Error(), "the file was damaged on the way") {
		t.Errorf("a wrong content: %v", err)
	}
}

// tarWith returns a tar of files.
func tarWith(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))})
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ownOf returns an environment that contains its interpreter.
func ownOf(data []byte) *clusterpb.Environment {
	sum := sha256.Sum256(data)
	content := &clusterpb.Blob{Sha256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	return &clusterpb.Environment{
		Python: "3.7", Own: true, Packed: &clusterpb.Shipped{Name: "env", Form: formTar, Content: content},
	}
}

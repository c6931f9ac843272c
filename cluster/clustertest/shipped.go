package clustertest

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// newVenv creates a virtual environment with one module.
func newVenv(t testing.TB, python string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Fatalf("make an environment: %v: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "lib", "python3.*", "site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the environment has %q, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(found[0], "brought.py"), []byte("here = 'with the environment'\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// pack packs an environment into an archive, as users do.
func pack(t testing.TB, dir string) string {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "small.tar.gz")
	if out, err := exec.Command("tar", "-czf", archive, "-C", dir, ".").CombinedOutput(); err != nil {
		t.Fatalf("pack an environment: %v: %s", err, out)
	}
	return archive
}

// Shipped tests that --files and --venv are available on executors without access to this host's disks, and
// are updated if they have changed. The error for a file that only the notebook's folder has names --files.
// The environment is an archive or a folder, and is unpacked below cache on the executors.
func Shipped(t *testing.T, h Harness, archive bool, cache string, change ...func(*clusterpb.ReserveRequest)) {
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.zip")
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	w, err := z.Create("deep/b.txt")
	if err == nil {
		_, err = w.Write([]byte("unpacked"))
	}
	if err != nil || z.Close() != nil || os.WriteFile(packed, zipped.Bytes(), 0o644) != nil ||
		os.WriteFile(plain, []byte("first"), 0o644) != nil {
		t.Fatal("cannot create the files to ship")
	}
	environment := newVenv(t, h.Python)
	if archive {
		environment = pack(t, environment)
	}
	c := h.Start(t, "worker=2", append(change, func(r *clusterpb.ReserveRequest) {
		r.ShipEnvironment = environment
		r.Ship = []*clusterpb.GivenFile{
			{Path: plain, Name: "conf/a.txt"}, {Path: packed, Name: "b", Unpack: true}, {Path: dir, Name: "all"},
		}
	})...)
	const reads = `
import brought, pathlib, sys, tfcluster
here = pathlib.Path.cwd()
print([pathlib.Path(p).read_text() for p in ("conf/a.txt", "b/deep/b.txt", "all/a.txt")], brought.here)
print("its own folder:", here == pathlib.Path(tfcluster.context().working_dir), "prefix", sys.prefix)
pathlib.Path("conf/a.txt").write_text("spoiled")
`
	for i, want := range []string{"first", "first", "second"} {
		if i == 2 {
			if err := os.WriteFile(plain, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r := c.Script(reads)
		if st := r.Wait(); st.GetState() != "finished" {
			t.Fatalf("the run is %s: %v\n%s\n%s", st.GetState(), st.GetFailure(), r.Text(), r.notes)
		}
		for task := range 2 {
			for _, line := range []string{
				fmt.Sprintf("['%s', 'unpacked', '%s'] with the environment", want, want), "its own folder: True prefix " + cache,
			} {
				if line = fmt.Sprintf("[worker:%d] %s", task, line); !strings.Contains(r.Text(), line) {
					t.Errorf("run %d: no %q:\n%s", i+1, line, r.Text())
				}
			}
		}
	}
	r, f := c.TryScript("open('data/train.csv')")
	if f == nil {
		f = r.Wait().GetFailure()
	}
	if text := f.String() + r.Text(); !strings.Contains(text, "reserve with --files data/train.csv") {
		t.Errorf("the run failed with %s", text)
	}
}

// AnotherPython tests that the reservation fails with one line if the executors do not have the environment's
// version of Python.
func AnotherPython(t *testing.T, h Harness, change ...func(*clusterpb.ReserveRequest)) {
	dir := newVenv(t, h.Python)
	if err := os.WriteFile(filepath.Join(dir, "pyvenv.cfg"), []byte("home = /usr/bin\nversion = 3.99.1\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	c := h.Launch(t, "worker=1", append(change, func(r *clusterpb.ReserveRequest) { r.ShipEnvironment = dir })...)
	if f := c.Reserved(); f == nil || !strings.Contains(f.GetSummary(), "is for Python 3.99, which ") ||
		strings.Contains(f.GetSummary(), "\n") {
		t.Errorf("the reservation's failure is %v", f)
	}
}

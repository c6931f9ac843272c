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

// venv is a virtual environment of an interpreter with one module in it.
func venv(t testing.TB, python string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Fatalf("make an environment: %v: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "lib", "python3.*", "site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the environment has %q, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(found[0], "brought.py"), []byte("here = 'with the environment'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// archived packs an environment as a person does.
func archived(t testing.TB, dir string) string {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "small.tar.gz")
	if out, err := exec.Command("tar", "-czf", archive, "-C", dir, ".").CombinedOutput(); err != nil {
		t.Fatalf("pack an environment: %v: %s", err, out)
	}
	return archive
}

// Shipped tests that --files and --venv are on executors with disks of their own, read anew
// where they have changed; a file that only the notebook's folder has is named with what to do.
// The environment is an archive or a folder, and lies below cache on the executors.
func Shipped(t *testing.T, h Harness, archive bool, cache string, change ...func(*clusterpb.ReserveRequest)) {
	given := t.TempDir()
	text, packed := filepath.Join(given, "a.txt"), filepath.Join(given, "b.zip")
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	w, err := z.Create("deep/b.txt")
	if err == nil {
		_, err = w.Write([]byte("unpacked"))
	}
	if err != nil || z.Close() != nil || os.WriteFile(packed, zipped.Bytes(), 0o644) != nil || os.WriteFile(text, []byte("first"), 0o644) != nil {
		t.Fatal("the files to give cannot be made")
	}
	environment := venv(t, h.Python)
	if archive {
		environment = archived(t, environment)
	}
	c := h.Start(t, "worker=2", append(change, func(r *clusterpb.ReserveRequest) {
		r.ShipEnvironment = environment
		r.Ship = []*clusterpb.GivenFile{{Path: text, Name: "conf/a.txt"}, {Path: packed, Name: "b", Unpack: true}, {Path: given, Name: "all"}}
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
			if err := os.WriteFile(text, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r := c.Script(reads)
		if st := r.Wait(); st.GetState() != "finished" {
			t.Fatalf("the run is %s: %v\n%s\n%s", st.GetState(), st.GetFailure(), r.Text(), r.notes)
		}
		for task := range 2 {
			for _, line := range []string{fmt.Sprintf("['%s', 'unpacked', '%s'] with the environment", want, want), "its own folder: True prefix " + cache} {
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
	if said := f.String() + r.Text(); !strings.Contains(said, "reserve with --files data/train.csv") {
		t.Errorf("it failed with %s", said)
	}
}

// AnotherPython tests that an environment whose Python executors do not have ends the
// reservation with one line about that.
func AnotherPython(t *testing.T, h Harness, change ...func(*clusterpb.ReserveRequest)) {
	dir := venv(t, h.Python)
	if err := os.WriteFile(filepath.Join(dir, "pyvenv.cfg"), []byte("home = /usr/bin\nversion = 3.99.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := h.Launch(t, "worker=1", append(change, func(r *clusterpb.ReserveRequest) { r.ShipEnvironment = dir })...)
	if f := c.Reserved(); f == nil || !strings.Contains(f.GetSummary(), "is for Python 3.99, which ") || strings.Contains(f.GetSummary(), "\n") {
		t.Errorf("the reservation's failure is %v", f)
	}
}

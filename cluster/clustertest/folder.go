package clustertest

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// OwnFolder tests the working directory of tasks on executors that are not the notebook's machine: a folder
// of each task, although the notebook's path exists here; or a folder that all executors have, if one is
// set. The program's modules are available in both.
func OwnFolder(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	notebook := filepath.Join(t.TempDir(), "notebook")
	if err := os.Mkdir(notebook, 0o700); err != nil {
		t.Fatal(err)
	}
	var modules bytes.Buffer
	z := zip.NewWriter(&modules)
	w, err := z.Create("beside.py")
	if err == nil {
		_, err = w.Write([]byte("here = 'brought'\n"))
	}
	if err != nil || z.Close() != nil {
		t.Fatal("the program's modules cannot be packed")
	}
	const program = `
import beside, os, tfcluster
ctx = tfcluster.context()
os.makedirs("wd", exist_ok=True)
open("wd/left-%d" % ctx.task_index, "w").close()
print(beside.here, "own", len(os.listdir("wd")), ctx.working_dir == os.getcwd(), os.getcwd(), flush=True)
`
	start := func(in string) func(*clusterpb.StartRequest) {
		return func(s *clusterpb.StartRequest) {
			s.Options.WorkingDir, s.Options.StartIn, s.Program.Path = notebook, in, filepath.Join(notebook, "train.py")
			s.Program.Modules = &clusterpb.Blob{Data: modules.Bytes()}
		}
	}
	r := c.Script(program, start(""))
	if st := r.Wait(); st.GetState() != "finished" || strings.Count(r.Text(), "brought own 1 True /") != 2 ||
		strings.Contains(r.Text(), notebook) {
		t.Errorf("the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	if files, err := os.ReadDir(notebook); err != nil || len(files) > 0 {
		t.Errorf("the notebook's folder contains %v: %v", files, err)
	}
	shared := t.TempDir()
	r = c.Script(program, start(shared))
	if st := r.Wait(); st.GetState() != "finished" || strings.Count(r.Text(), "True "+shared) != 2 {
		t.Errorf("with --working-dir the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	if files, err := filepath.Glob(filepath.Join(shared, "wd", "left-*")); err != nil || len(files) != 2 {
		t.Errorf("the working directory contains %v: %v", files, err)
	}
	missing := filepath.Join(shared, "missing")
	r, f := c.TryScript(program, start(missing))
	if f == nil {
		f = r.Wait().GetFailure()
	}
	if want := fmt.Sprintf("--working-dir %s is not a folder on %s: give one that every executor has", missing,
		c.executor(f.GetTask()).GetHost()); !strings.Contains(f.GetSummary(), want) ||
		strings.Contains(f.GetSummary(), "\n") {
		t.Errorf("with a missing folder the run fails with %q", f.GetSummary())
	}
}

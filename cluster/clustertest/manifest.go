package clustertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// testManifest: what each task ran with is recorded, and a task that finds another version of a package is named.
func testManifest(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script("import skewed\nprint('has', skewed.__version__, flush=True)\n", func(s *clusterpb.StartRequest) {
		s.Options.Env = map[string]string{"PYTHONPATH": skewedPackages(t), "COLOUR": "blue", "MY_SECRET": "geheim"}
		s.Program.Words = []string{"--lr", "0.1"}
	})
	if st := r.Wait(); st.GetState() != "finished" || !strings.Contains(r.Text(), "[worker:1] has 1.26") ||
		!strings.Contains(r.Text(), "[worker:0] has 2.1") {
		t.Fatalf("the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	st, err := c.Client.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	notes := fmt.Sprint(st.GetNotes())
	if n := strings.Count(notes, "worker:1 has skewed 1.26, worker:0 2.1"); n != 1 {
		t.Errorf("the difference is noted %d times: %s", n, notes)
	}
	h1, err := c.Client.History(ctx, &clusterpb.HistoryRequest{Manifests: []int32{1}})
	if err != nil {
		t.Fatal(err)
	}
	m := h1.GetManifests()[1]
	common, tasks := m.GetCommon(), m.GetTasks()
	if common.GetVersions()["Python"] == "" || len(common.GetCode()["test.py"]) != 64 ||
		common.GetEnvironment()["COLOUR"] != "blue" || m.GetEnvironment()["COLOUR"] != "blue" {
		t.Errorf("the common part is %v", common)
	}
	for task, version := range map[string]string{"worker:0": "2.1", "worker:1": "1.26"} {
		if x := tasks[task]; x.GetPackages()["skewed"] != version || x.GetHost() == "" || x.GetExecutorId() == "" {
			t.Errorf("%s is %v", task, x)
		}
	}
	if strings.Contains(fmt.Sprint(m), "geheim") {
		t.Errorf("a secret is in %v", m)
	}
}

// skewedPackages returns a folder for PYTHONPATH with which worker:1 finds another version of a package than other
// tasks. Executors must be on this host.
func skewedPackages(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(top, name)
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"1.26", "2.1"} {
		write(version+"/site-packages/skewed/__init__.py", fmt.Sprintf("__version__ = %q\n", version))
		write(version+"/site-packages/skewed-"+version+".dist-info/METADATA", "Name: skewed\n")
	}
	write("sitecustomize.py", `
import os, sys
version = "1.26" if os.environ.get("TASK_INDEX") == "1" else "2.1"
sys.path.insert(0, os.path.join(os.path.dirname(__file__), version, "site-packages"))
`)
	return top
}

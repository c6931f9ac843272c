package spark_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// TestNothingShared: the driver is here, Spark's executors are in a network namespace
// of their own, where the folders that the driver writes to are empty. What a task
// leaves reaches the driver, and comes back to the next run.
func TestNothingShared(t *testing.T) {
	t.Parallel()
	ns, here, there := clustertest.Namespace(t)
	dir := t.TempDir()
	sockets, err := state.RuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	state := os.Getenv("TFCLUSTER_HOME")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	hide := "for dir in " + strings.Join([]string{dir, sockets, state}, " ") +
		`; do mount -t tmpfs none $dir; done; exec "$@"`
	c := sparktest.Start(t, sparktest.Options{Host: here, Wrap: func(int) ([]string, string) {
		return []string{"ip", "netns", "exec", ns, "unshare", "--mount", "sh", "-ec", hide, "sh"}, there
	}})
	cl := own(t, c).Start(t, "worker=2", copied, func(r *clusterpb.ReserveRequest) {
		r.Dir = dir
		r.Engine["conf.spark.driver.host"], r.Engine["conf.spark.driver.bindAddress"] = here, here
	})
	r := cl.Script(`
import os, pathlib, tfcluster
ctx = tfcluster.context()
print("I am at", ctx.cluster_spec["worker"][ctx.task_index], "with", sorted(os.listdir(ctx.checkpoint_dir)), flush=True)
if ctx.is_chief:
    pathlib.Path(ctx.checkpoint_dir, "weights").write_text("w" * 100_000)
    pathlib.Path(ctx.log_dir, "events.out.tfevents.1.x").write_bytes(b"x" * 1000)
ctx.barrier("written")
`)
	if st := r.Wait(); st.GetState() != "finished" || !strings.Contains(r.Text(), "I am at "+there+":") {
		t.Fatalf("the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	if fi, err := os.Stat(filepath.Join(dir, "run-001", "checkpoints", "weights")); err != nil || fi.Size() != 100_000 {
		t.Errorf("the checkpoint did not reach the driver: %v", err)
	}
	r = cl.Script("import os, tfcluster\nprint('again', os.listdir(tfcluster.context().checkpoint_dir), flush=True)\n",
		func(s *clusterpb.StartRequest) { s.Options.Resume = "last" })
	if st := r.Wait(); st.GetState() != "finished" || strings.Count(r.Text(), "again ['weights']") != 2 {
		t.Errorf("the next run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
}

package spark_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

// runsOnHDFS: what tasks on Spark's executors leave is on HDFS when the run is over,
// and comes back to the next run.
func runsOnHDFS(t *testing.T, h clustertest.Harness) {
	hadoop := hadoop.Get(t)
	dir := fmt.Sprintf("hdfs://%s:8020/user/me/%s", hadoop.Host, rand.Text())
	user, err := hadoopconf.User()
	if err != nil {
		t.Fatal(err)
	}
	f, err := hdfs.New(hdfs.Config{Conf: hadoopconf.New(nil), User: user})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	apart := func(s *clusterpb.StartRequest) { s.Options.WorkingDir = "" }
	c := h.Start(t, "worker=2", func(r *clusterpb.ReserveRequest) { r.Dir = dir })
	r := c.Script(`
import pathlib, tfcluster
ctx = tfcluster.context()
if ctx.is_chief: pathlib.Path(ctx.checkpoint_dir, "weights").write_text("w" * 100_000)
pathlib.Path(ctx.log_dir, f"events.out.tfevents.1.{ctx.task_index}").write_bytes(b"x" * 1000)
print("written", flush=True)
`, apart)
	if st := r.Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	for name, size := range map[string]int{
		"checkpoints/weights": 100_000, "logs/events.out.tfevents.1.0": 1000, "logs/events.out.tfevents.1.1": 1000,
		"tasks/worker-1/000000000000.log": len("2026-11-21T04:05:06.789012345Z O written\n"),
	} {
		if b, err := f.Read(t.Context(), dir+"/run-001/"+name); err != nil || len(b) != size {
			t.Errorf("%s has %d bytes on HDFS: %v", name, len(b), err)
		}
	}
	r = c.Script("import os, tfcluster\nprint('again', os.listdir(tfcluster.context().checkpoint_dir), flush=True)\n",
		apart, func(s *clusterpb.StartRequest) { s.Options.Resume = "last" })
	if st := r.Wait(); st.GetState() != "finished" || strings.Count(r.Text(), "again ['weights']") != 2 {
		t.Errorf("the next run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
}

package spark_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
)

// TestGPUs: GPUs that Spark assigns are those of the tasks, those of a lost executor also of the next one.
func TestGPUs(t *testing.T) {
	t.Parallel()
	discovery := filepath.Join(t.TempDir(), "gpus.sh")
	executable.Write(t, discovery, "#!/bin/sh\necho '{\"name\": \"gpu\", \"addresses\": [\"4\", \"7\"]}'\n")
	c := sparktest.Start(t, sparktest.Options{Workers: 1, Conf: map[string]string{
		"spark.worker.resource.gpu.amount": "2", "spark.worker.resource.gpu.discoveryScript": discovery,
	}})
	cl := own(t, c).Start(t, "worker=2",
		func(r *clusterpb.ReserveRequest) { r.Roles[0].Each = &clusterpb.Resources{Gpus: 1} })
	r := cl.Script("import os\nprint('sees', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n")
	if st := r.Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	if text := r.Text(); !strings.Contains(text, "sees 4") || !strings.Contains(text, "sees 7") {
		t.Errorf("the tasks saw other GPUs than Spark gave:\n%s", text)
	}
	r = cl.Script(forever)
	r.Line("[worker:1] here")
	kill(t, c.Executors(application(t, cl))[0].PID)
	if f := r.Wait().GetFailure(); f.GetKind() != "lost" {
		t.Errorf("failure is %v", f)
	}
	again(t, cl)
}

// TestGPUsOfASession: GPUs are refused on a session whose tasks get none, naming its
// setting.
func TestGPUsOfASession(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	s := startNotebook(t, c, append(many(t, c), "spark.executor.cores=1", "spark.cores.max=1")...)
	f := s.lent(c).Launch(t, "worker=1",
		func(r *clusterpb.ReserveRequest) { r.Roles[0].Each = &clusterpb.Resources{Gpus: 1} }).Reserved()
	if !strings.Contains(f.GetSummary(), "spark.executor.resource.gpu.amount where the session is made") {
		t.Errorf("failure is %v", f)
	}
}

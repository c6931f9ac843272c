package lab

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// TestYARN runs the two notebooks about an overnight run on a real YARN: containers of two sizes; a worker
// that dies at night; and a second kernel that shows it, resumes the training in the same containers, and
// releases them.
func TestYARN(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts Hadoop, JupyterLab, TensorFlow seven times and a browser")
	}
	prefix := install(t)
	h := hadooptest.Shared(t)
	s := Start(t, prefix, "HADOOP_CONF_DIR="+h.Conf)
	evening, morning := s.copyNotebook(t, "05-yarn.ipynb"), s.copyNotebook(t, "05-yarn-morning.ipynb")
	r := s.RunNotebook(
		t, evening, "run:0", "text:4 workers . 2 ps, ready in", "idle", "shot:reserved",
		"run:1", "run:2", "text:run 1 · main_fun · entered on 7 tasks", "run:3",
		"text:continues after this kernel shuts down", "idle", "save", "beside:"+morning, "run:0",
		"text:attached to cluster overnight", "run:1", "text:restarted 1 of 2", "idle", "shot:night", "run:2", "run:3",
		"run:4", "text:run 2 · main_fun · finished", "idle", "run:5", "idle", "shot:morning", "run:6", "text:released in",
		"idle", "save",
	)
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	for _, want := range []string{
		"worker:2", "SIGKILL", "epochs 0 to 5, accuracy", "results: hdfs://" + h.Host, "resumed from run 1",
		"epochs 6 to 11, accuracy",
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the notebooks do not show %q:\n%s", want, r.Text)
		}
	}
	if a := lastAccuracy(t, r.Text); a < 0.8 {
		t.Errorf("accuracy %v:\n%s", a, r.Text)
	}
	s.checkNoToken(t, evening)
	runManaged(t, s)
}

// runManaged runs the same cells with the cluster's driver in a container.
func runManaged(t *testing.T, s *Server) {
	t.Helper()
	nb := s.WriteNotebook(t, "managed.ipynb", "tfcluster",
		"%tfcluster reserve --backend yarn --managed --workers 2 --memory 1500m --name away", program,
		"%tfcluster start main_fun", "%tfcluster wait", "%tfcluster tensorboard", "%tfcluster status", "%tfcluster shutdown")
	r := s.RunNotebook(t, nb,
		"run:0", "idle", "run:1", "run:2", "idle", "restart", "run:3", "text:attached to cluster away", "text:finished",
		"idle", "shot:managed-waited", "run:4", "idle", "frame:tb-webapp", "frame:scalar-card svg", "run:5", "idle",
		"shot:managed-status", "run:6", "text:released in", "idle", "save")
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	for _, want := range []string{
		"2 executors = 2 workers", "[worker:1] trained worker 1", "worker1/loss 0.01667", "results: hdfs://",
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the notebook does not show %q:\n%s", want, r.Text)
		}
	}
	s.checkNoToken(t, nb)
}

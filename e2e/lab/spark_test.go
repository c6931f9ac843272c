package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
)

// TestSpark runs three notebooks at the same time on one cluster of a real Spark: training, during which an
// executor is killed and which is then run again; its evaluation; and TensorBoard.
func TestSpark(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts Spark, JupyterLab, TensorFlow, TensorBoard and a browser")
	}
	prefix := install(t)
	engine := sparktest.Shared(t, map[string]string{"spark.executor.memory": "512m"})
	s := Start(t, prefix, sparkEnvironment(engine)...)
	train, evaluate, board := s.copyNotebook(t, "04-spark.ipynb"), s.copyNotebook(t, "04-spark-evaluate.ipynb"),
		s.copyNotebook(t, "04-spark-tensorboard.ipynb")

	var killing sync.WaitGroup
	killing.Go(func() {
		killWhileTraining(t, engine,
			filepath.Join(s.Root, "tfcluster-runs", "digits", "run-001", "checkpoints", "epoch-02.keras"))
	})
	r := s.RunNotebook(
		t, train, "run:0", "idle", "run:1", "text:cluster digits: 2 executors = 2 workers, ready in", "idle", "shot:reserved",
		"run:2", "run:3", "run:5", "text:RunFailed", "text:the Spark executor ended", "idle", "select:6", "shot:killed",
		"size:1800x1200", "select:3", "run:3", "text:run 2 · main_fun · entered on 2 tasks", "run:4", "run:5",
		"beside:"+evaluate, "run:0", "run:1", "run:2", "below:"+board, "run:0", "run:1", "run:2", "frame:tb-webapp",
		"frame:scalar-card svg", "focus:"+evaluate, "text:epoch-03.keras: loss", "select:2", "focus:"+train, "select:5",
		"shot:side-by-side", "focus:"+evaluate, "text:epoch-10.keras: loss", "idle", "focus:"+train,
		"text:run 2 · main_fun · finished", "idle", "shot:trained", "run:6", "run:7", "text:not reserved within", "idle",
		"shot:too-few", "run:8", "text:released in", "run:9", "idle", "save",
	)
	killing.Wait()
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	for _, want := range []string{
		"[worker:1] worker:1 of 2 trains on 4096 images", "attached to cluster digits",
		"Spark has 2 slots of 3: 2 executors of 1 core on", "spark.cores.max",
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the notebooks do not show %q:\n%s", want, r.Text)
		}
	}
	if n := len(regexp.MustCompile(`epoch-\d\d\.keras: loss \d\.\d+, accuracy 0\.\d+`).FindAllString(r.Text,
		-1)); n != 10 {
		t.Errorf("%d checkpoints of 10 were evaluated:\n%s", n, r.Text)
	}
	if a := lastAccuracy(t, r.Text); a < 0.8 {
		t.Errorf("accuracy %v:\n%s", a, r.Text)
	}
	s.checkNoToken(t, train)
}

// sparkEnvironment returns the environment variables with which a kernel's sessions use the cluster.
func sparkEnvironment(c *sparktest.Cluster) []string {
	env := []string{"SPARK_MASTER=" + c.URL}
	for _, kv := range c.Environment() {
		if strings.HasPrefix(kv, "SPARK_") || strings.HasPrefix(kv, "PYSPARK_") {
			env = append(env, kv)
		}
	}
	return env
}

// killWhileTraining kills an executor's JVM when the checkpoint exists.
func killWhileTraining(t *testing.T, c *sparktest.Cluster, checkpoint string) {
	clustertest.WaitFor(t, "the checkpoint "+filepath.Base(checkpoint), func() bool {
		_, err := os.Stat(checkpoint)
		return err == nil
	})
	s, err := c.State()
	notebooks := slices.IndexFunc(s.Active, func(a sparktest.Application) bool { return a.Name == "digits" })
	if err != nil || notebooks < 0 {
		t.Errorf("the master has %+v, %v", s, err)
		return
	}
	executors := c.Executors(s.Active[notebooks].ID)
	if len(executors) != 2 {
		t.Errorf("executors %+v", executors)
		return
	}
	if err := syscall.Kill(executors[1].PID, syscall.SIGKILL); err != nil {
		t.Errorf("kill an executor: %v", err)
	}
}

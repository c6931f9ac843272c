package spark_test

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m, engine, hadoop)) }

// engine is the Spark of all tests that neither kill its daemons nor need other settings.
var engine = clustertest.Share(func(t testing.TB) *sparktest.Cluster {
	return sparktest.Shared(t, nil)
})

// hadoop is the Hadoop of the tests that need one.
var hadoop = clustertest.Share(hadooptest.Shared)

// named gives the test's applications a name, and has the test answer for what is left of
// them.
func named(t testing.TB, c *sparktest.Cluster) string {
	t.Helper()
	name := "of a test " + rand.Text()
	c.CheckApplications(t, name)
	return name
}

// own is a harness whose clusters each make a session of their own. A standalone
// executor takes a second or two, so drivers in tests keep to cheap JVMs.
func own(t testing.TB, c *sparktest.Cluster) clustertest.Harness {
	t.Helper()
	engine := map[string]string{"master": c.URL, "conf.spark.app.name": named(t, c)}
	for key, value := range map[string]string{
		"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
		"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.driver.extraJavaOptions": c.JVMOptions(),
		"spark.executor.extraJavaOptions":   c.JVMOptions(),
		"spark.executorEnv.TFCLUSTER_CACHE": os.Getenv("TFCLUSTER_CACHE"), // else the user's: the workers are no test's
	} {
		engine["conf."+key] = value
	}
	return clustertest.Harness{
		Program: clustertest.Program(t), Python: c.Python,
		Reserve: &clusterpb.ReserveRequest{Backend: "spark", IdleMillis: 60_000, Engine: engine},
	}
}

// notebook is a process with a SparkSession that lends it as the shim in a notebook
// does; lines on its stdin are sockets of drivers.
const notebook = `
import sys
from pyspark.sql import SparkSession
from tfcluster import spark_host
builder = SparkSession.builder
for setting in sys.argv[1:]:
    key, _, value = setting.partition("=")
    builder = builder.remote(value) if key == "remote" else builder.config(key, value)
spark = builder.getOrCreate()
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "lend":
        spark_host.borrow(spark, words[1])
    elif words[0] == "sum":
        print("sum", spark.range(int(words[1])).selectExpr("sum(id) s").first().s, flush=True)
    elif words[0] == "retry":  # a job of this group whose task fails once
        def once(partition):
            from pyspark import TaskContext
            if TaskContext.get().attemptNumber() == 0:
                raise ValueError("once")
            return partition
        spark.sparkContext.setJobGroup(words[1], "another's")
        print("retried", spark.sparkContext.parallelize([1], 1).mapPartitions(once).sum(), flush=True)
    elif words[0] == "stop":
        spark.stop()
        print("stopped", flush=True)
`

// session is a running notebook.
type session struct {
	t   testing.TB
	cmd *exec.Cmd
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Scanner
}

func startNotebook(t testing.TB, c *sparktest.Cluster, settings ...string) *session {
	t.Helper()
	python, err := filepath.Abs("../python")
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, cmd: exec.Command(c.Python, append([]string{"-c", notebook}, settings...)...)}
	s.cmd.Env, s.cmd.Dir = append(c.Environment(), "PYTHONPATH="+python), t.TempDir()
	var log strings.Builder
	s.cmd.Stderr = &log
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		s.in, err = s.cmd.StdinPipe()
	}
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = s.in.Close() // tells it to end
		if err := s.cmd.Wait(); err != nil && t.Failed() {
			t.Logf("the notebook: %v\n%s", err, log.String())
		}
	})
	s.hear("ready")
	return s
}

func (s *session) say(words ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintln(s.in, strings.Join(words, " ")); err != nil {
		s.t.Errorf("tell the notebook %v: %v", words, err)
	}
}

// hear waits for a line that begins with word.
func (s *session) hear(word string) string {
	s.t.Helper()
	late := time.AfterFunc(clustertest.Deadline, func() { _ = s.cmd.Process.Kill() }) // ends its output
	defer late.Stop()
	for s.out.Scan() {
		if strings.HasPrefix(s.out.Text(), word) {
			return s.out.Text()
		}
	}
	s.t.Fatalf("the notebook ended before it said %s", word)
	return ""
}

// lent is a harness whose clusters are all on the notebook's session.
func (s *session) lent(c *sparktest.Cluster) clustertest.Harness {
	return clustertest.Harness{
		Program: clustertest.Program(s.t), Python: c.Python,
		Reserve: &clusterpb.ReserveRequest{
			Backend: "spark", IdleMillis: 60_000, Engine: map[string]string{"session": "spark", "host": "127.0.0.1"},
		},
		Launched: func(t testing.TB, name string) {
			socket, err := state.HostSocket(name)
			if err != nil {
				t.Fatal(err)
			}
			s.say("lend", socket)
		},
	}
}

// many are settings of a session whose executors have room for all that the suite
// runs side by side.
func many(t testing.TB, c *sparktest.Cluster) []string {
	t.Helper()
	return []string{
		"spark.app.name=" + named(t, c), "spark.master=" + c.URL, "spark.executor.cores=16", "spark.cores.max=32",
		"spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.ui.enabled=false",
		"spark.executorEnv.TFCLUSTER_CACHE=" + os.Getenv("TFCLUSTER_CACHE"),
	}
}

// TestSmoke: the backend works on the notebook's own session.
func TestSmoke(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	clustertest.Smoke(t, startNotebook(t, c, many(t, c)...).lent(c))
}

// TestSuiteOnASession: every case on the notebook's own session.
func TestSuiteOnASession(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	s := startNotebook(t, c, many(t, c)...)
	t.Run("suite", func(t *testing.T) { clustertest.Suite(t, s.lent(c)) })
	t.Run("hdfs", func(t *testing.T) { runsOnHDFS(t, s.lent(c)) })
	t.Run("own folder", func(t *testing.T) { clustertest.OwnFolder(t, s.lent(c)) })
	s.say("sum", "10")
	if got := s.hear("sum"); got != "sum 45" {
		t.Errorf("the session that clusters were on gives %q", got)
	}
}

// TestOwnSession: a cluster with a session of its own, from reserve to shutdown. Spark could start none
// of its Python workers, and need not. A module beside the notebook that is named like one of the
// standard library is not imported by the session's process.
func TestOwnSession(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	h := own(t, c)
	h.Reserve.Engine["conf.spark.pyspark.python"] = "/no/python"
	cl := h.Start(t, "worker=2", func(r *clusterpb.ReserveRequest) {
		if err := os.WriteFile(filepath.Join(r.GetWorkingDir(), "platform.py"), []byte("raise RuntimeError('imported')\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
	})
	r := cl.Script("import os, sys\nprint('pyspark' in sys.modules, os.environ.get('OMP_NUM_THREADS'), flush=True)\n")
	if st := r.Wait(); st.GetState() != "finished" || !strings.Contains(r.Text(), "[worker:1] False None") {
		t.Errorf("the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	if app := application(t, cl); !strings.HasPrefix(app, "app-") {
		t.Errorf("the application is %q", app)
	}
}

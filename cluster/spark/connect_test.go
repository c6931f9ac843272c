package spark_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
)

// connectServer starts Spark Connect's server on the cluster and returns where a
// client finds it.
func connectServer(t testing.TB, c *sparktest.Cluster, settings ...string) string {
	t.Helper()
	const parts = "import grpc, grpc_status, google.rpc, pandas, pyarrow, zstandard, pyspark.sql.connect"
	if out, err := exec.Command(c.Python, "-c", parts).CombinedOutput(); err != nil {
		t.Skipf("missing: Spark Connect's client: %s", out)
	}
	if !hasConnect(t, c) {
		t.Skip("missing: Spark Connect's server among pyspark's jars")
	}
	home := sparkHome(c)
	port := freePort(t)
	words := []string{"--class", "org.apache.spark.sql.connect.service.SparkConnectServer"}
	for _, s := range append(settings, "spark.connect.grpc.binding.address=127.0.0.1",
		"spark.connect.grpc.binding.port="+port) {
		words = append(words, "--conf", s)
	}
	log := filepath.Join(t.TempDir(), "connect.log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(filepath.Join(home, "bin", "spark-submit"), append(words, "spark-internal")...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Environment(), t.TempDir(), f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() { // Pdeathsig follows the forking thread, which therefore waits for its child
		runtime.LockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its log tells
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		<-ended
		if text, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("Spark Connect's server:\n%s", text)
		}
	})
	clustertest.WaitFor(t, "Spark Connect's server", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return "sc://127.0.0.1:" + port
}

func sparkHome(c *sparktest.Cluster) string {
	for _, kv := range c.Environment() {
		if v, ok := strings.CutPrefix(kv, "SPARK_HOME="); ok {
			return v
		}
	}
	return ""
}

// hasConnect is whether this pyspark brings Spark Connect's server.
func hasConnect(t testing.TB, c *sparktest.Cluster) bool {
	t.Helper()
	jars, err := filepath.Glob(filepath.Join(sparkHome(c), "jars", "spark-connect_*.jar"))
	if err != nil {
		t.Fatal(err)
	}
	return len(jars) > 0
}

func freePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return fmt.Sprint(ln.Addr().(*net.TCPAddr).Port)
}

// TestExecutorsOnConnect: the cases about executors on a session of Spark Connect, where there is
// neither an RDD nor a JVM beside the notebook.
func TestExecutorsOnConnect(t *testing.T) {
	t.Parallel()
	c := engine.Get(t)
	s := startNotebook(t, c, "remote="+connectServer(t, c, many(t, c)...))
	t.Run("suite", func(t *testing.T) { clustertest.Cases(t, s.lent(c), clustertest.Executors) })
	s.say("sum", "10")
	if got := s.hear("sum"); got != "sum 45" {
		t.Errorf("the session that clusters were on gives %q", got)
	}
}

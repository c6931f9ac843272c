package hosts

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest/hosts"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
)

// sparkSite starts a standalone Spark on the hosts: workers of two cores.
func sparkSite(t testing.TB) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("short: needs Spark")
	}
	s := newSite(t)
	home := sparktest.Home(t, s.python)
	jars, _ := filepath.Glob(filepath.Join(home, "jars", "spark-core_*.jar")) // the pattern is well formed
	scala, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(jars[0]), "spark-core_"), "-")
	env := []string{"SPARK_HOME=" + home, "SPARK_SCALA_VERSION=" + scala}
	java := func(class string, words ...string) []string {
		flags := []string{
			"java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(home, "jars", "*"), class,
		}
		return append(flags, words...)
	}
	s.daemon(master, "I have been elected leader", env,
		java("org.apache.spark.deploy.master.Master", "--host", master, "--port", "7077")...)
	for _, host := range workers {
		s.daemon(host, "Successfully registered with master", env, java("org.apache.spark.deploy.worker.Worker", "--host",
			host, "--cores", "2", "--memory", "3g", "--work-dir", "/tmp/work", "spark://"+master+":7077")...)
	}
	url := fmt.Sprintf("spark://%s:7077", master)
	s.env = append(s.env, env[0], "PYSPARK_PYTHON="+s.python)
	s.options = []string{"--backend", "spark", "--master", url, "--python", s.python}
	s.ports = "7100,7101"
	s.fixed = []string{"--conf", "spark.driver.port=7100", "--conf", "spark.driver.blockManager.port=7101"}
	s.results = hosts.Home + "/results"
	s.cells = cells{
		session: "from pyspark.sql import SparkSession\nspark = SparkSession.builder.master(" + strconv.Quote(url) + ")",
		options: []string{"--backend", "spark"},
		data:    "spark.range(0, n, 1, 4).selectExpr('cast(id as double) x')",
	}
	for _, conf := range []string{
		"spark.executor.cores=1", "spark.cores.max=4", "spark.executor.memory=512m", "spark.driver.memory=512m",
		"spark.ui.enabled=false", "spark.ui.showConsoleProgress=false",
	} {
		s.options = append(s.options, "--conf", conf)
		key, value, _ := strings.Cut(conf, "=")
		s.cells.session += fmt.Sprintf(".config(%q, %q)", key, value)
	}
	s.cells.session += ".getOrCreate()"
	return s
}

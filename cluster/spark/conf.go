package spark

import (
	"cmp"
	"crypto/rand"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Keys of a request's engine options, the names of options in magics.
const (
	engineMaster   = "master"
	engineSession  = "session"          // the notebook's session; absent: the driver makes one
	engineIdentity = "session_identity" // a name of that session's object
	enginePackages = "packages"
	engineQueue    = "queue"
	engineConf     = cluster.EngineConf // followed by Spark's own key
)

// onNotebookSession returns whether the request is for the notebook's own session.
func onNotebookSession(r *clusterpb.ReserveRequest) bool { return r.GetEngine()[engineSession] != "" }

// executor is the size of a Spark executor. All have the same: the largest that a role
// requests.
type executor struct {
	cpus   int
	memory int64 // bytes in addition to the JVM's; 0: Spark's default
	gpus   int32
}

func sizeOf(execs []cluster.ExecutorRequest) executor {
	size := executor{cpus: 1}
	for _, e := range execs {
		size.cpus = max(size.cpus, int(math.Ceil(e.Each.GetCpus())))
		size.memory = max(size.memory, e.Each.GetMemoryBytes())
		size.gpus = max(size.gpus, e.Each.GetGpus())
	}
	return size
}

// settings returns the configuration of a session that the driver makes; --conf overrides its
// other values.
func settings(req cluster.Request, host string) map[string]string {
	r, size, n := req.Reserve, sizeOf(req.Executors), len(req.Executors)
	conf := map[string]string{
		"spark.app.name": "tfcluster " + req.Cluster, "spark.dynamicAllocation.enabled": "false",
		"spark.speculation": "false", "spark.executor.cores": strconv.Itoa(size.cpus),
		"spark.task.cpus": strconv.Itoa(size.cpus), "spark.executor.instances": strconv.Itoa(n),
		"spark.cores.max": strconv.Itoa(n * size.cpus), "spark.ui.showConsoleProgress": "false",
		"spark.sql.catalogImplementation": "in-memory", "spark.log.level": "WARN",
		// The server starts when the notebook requests the session; clients need the token.
		"spark.connect.grpc.binding.address": "localhost", "spark.connect.grpc.binding.port": "0",
		"spark.connect.authenticate.token": rand.Text(),
	}
	for key, value := range map[string]string{
		"spark.master": r.GetEngine()[engineMaster], "spark.jars.packages": r.GetEngine()[enginePackages],
		"spark.yarn.queue": r.GetEngine()[engineQueue], "spark.pyspark.python": r.GetPython(), "spark.driver.host": host,
	} {
		if value != "" {
			conf[key] = value
		}
	}
	if size.memory > 0 { // agent and tasks use memory outside the JVM's heap
		conf["spark.executor.memoryOverhead"] = strconv.FormatInt(size.memory>>20, 10) + "m"
	}
	if size.gpus > 0 { // a resource profile assigns them to agents; the session's other tasks, a feed's too, need none
		conf["spark.executor.resource.gpu.amount"] = strconv.Itoa(int(size.gpus))
	}
	for key, value := range r.GetEngine() {
		if name, ok := strings.CutPrefix(key, engineConf); ok {
			conf[name] = value
		}
	}
	return conf
}

// check refuses impossible requests at once. Those for the notebook's session are checked by the verb.
func check(req cluster.Request) error {
	r := req.Reserve
	switch conf := r.GetEngine()[engineConf+"spark.dynamicAllocation.enabled"]; {
	case onNotebookSession(r):
	case conf == "true":
		return errors.New("--conf spark.dynamicAllocation.enabled=true: executors that come and go cannot hold a cluster; " +
			"leave it out")
	case masterOf(r) == "" && !hasDefaultMaster():
		return errors.New("which Spark? Give --master spark://HOST:7077, yarn, k8s://… or local[N], " +
			"or make a SparkSession called spark in the notebook first")
	}
	return nil
}

// masterOf returns the master of a session that the driver makes: that of --conf spark.master, which
// overrides other settings, or of --master; "" if neither is given.
func masterOf(r *clusterpb.ReserveRequest) string {
	return cmp.Or(r.GetEngine()[engineConf+"spark.master"], r.GetEngine()[engineMaster])
}

// hasDefaultMaster returns whether spark-defaults.conf has a master.
func hasDefaultMaster() bool {
	dir := os.Getenv("SPARK_CONF_DIR")
	if dir == "" && os.Getenv("SPARK_HOME") != "" {
		dir = filepath.Join(os.Getenv("SPARK_HOME"), "conf")
	}
	if dir == "" {
		return false
	}
	text, _ := os.ReadFile(filepath.Join(dir, "spark-defaults.conf")) // without it there is no default
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(strings.Replace(line, "=", " ", 1)); len(f) > 1 && f[0] == "spark.master" {
			return true
		}
	}
	return false
}

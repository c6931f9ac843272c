package sparktest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// pollInterval is the interval at which states without events are polled.
const pollInterval = 20 * time.Millisecond

// jvmFlags shorten a JVM's start and reduce its size.
const jvmFlags = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

// Options describe a cluster. The zero value means two workers of two cores and 4 GiB on the loopback
// interface, with room for four executors of one core.
type Options struct {
	// Python is the interpreter whose pyspark is used; clustertest.FindPython's if empty.
	Python string
	// Workers is the number of workers; Cores and MemoryMiB are the resources of each.
	Workers, Cores, MemoryMiB int
	// Host is the address that the master and the workers listen on, and that their
	// web pages are bound to; 127.0.0.1 if empty.
	Host string
	// Conf are properties of the daemons, e.g. spark.worker.resource.gpu.amount.
	Conf map[string]string
	// Defaults are added to the spark-defaults.conf of sessions that use Environment.
	Defaults map[string]string
	// Wrap returns arguments that precede the command of worker i (from 0), for example ip netns exec, and
	// the address on which the worker then listens. It may be nil. The command must become the worker by
	// exec.
	Wrap func(i int) (words []string, host string)
}

// Cluster is a running standalone cluster.
type Cluster struct {
	// URL is the master's URL for sessions.
	URL string
	// UI is the address of the master's web page, without a slash at its end.
	UI string
	// Python is the interpreter whose pyspark has the cluster's jars.
	Python string

	t       testing.TB
	opts    Options
	java    string
	home    string // pyspark's folder, which has the layout of a SPARK_HOME
	archive string // of Spark's classes; "" if there is none
	scala   string // the Scala version of its jars
	dir     string // of the daemons
	conf    string // the folder with spark-defaults.conf of sessions
	marker  string // a variable in the environment of all processes that the daemons start
	mu      sync.Mutex
	daemons []*daemon // the master, then the workers; guarded by mu
}

// Start starts a master and workers and waits until all have registered. It skips the test if Java or
// pyspark is missing. They are stopped at the end of the test, which fails if an application or a process
// is left then. Sessions must be stopped before. Start skips the test in short mode.
func Start(t testing.TB, opts Options) *Cluster {
	t.Helper()
	c := newCluster(t, opts)
	c.marker = "TFCLUSTER_SPARKTEST=" + rand.Text()
	c.scala = scalaOf(t, c.home)
	c.dir = t.TempDir()
	c.conf = filepath.Join(c.dir, "conf")
	if err := errors.Join(os.Mkdir(c.Work(), 0o700), c.configure()); err != nil {
		t.Fatalf("set up Spark: %v", err)
	}
	t.Cleanup(c.stop)
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	if err := c.startMaster(ctx); err != nil {
		t.Fatal(err)
	}
	for range c.opts.Workers {
		c.start(c.worker())
	}
	c.await("the workers' registration", func(s State) bool { return len(s.Alive()) == c.opts.Workers })
	return c
}

// newCluster returns a cluster without daemons.
func newCluster(t testing.TB, opts Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("short: needs Spark")
	}
	c := &Cluster{t: t, opts: opts.withDefaults(t)}
	c.Python, c.java, c.home = c.opts.Python, findJava(t), Home(t, c.opts.Python)
	c.archive = classArchive(t, c.Python, c.java, c.home)
	return c
}

// AddWorker starts one more worker and waits until it has registered.
func (c *Cluster) AddWorker() {
	c.t.Helper()
	s, err := c.State()
	if err != nil {
		c.t.Fatal(err)
	}
	n := len(s.Alive())
	c.start(c.worker())
	c.await("the new worker's registration", func(s State) bool { return len(s.Alive()) > n })
}

// KillWorker kills the daemon of worker i (from 0, in start order) with SIGKILL and waits for its end. Its
// executors end soon after.
func (c *Cluster) KillWorker(i int) {
	c.t.Helper()
	c.mu.Lock()
	d := c.daemons[i+1]
	c.mu.Unlock()
	d.kill()
}

// Environment returns the environment of a process that starts sessions on the cluster: the test's, without
// settings of another Spark, and with pyspark's folder as SPARK_HOME.
func (c *Cluster) Environment() []string {
	return append(environ(), "SPARK_HOME="+c.home, "SPARK_LOCAL_IP="+c.opts.Host,
		"SPARK_LOCAL_DIRS="+filepath.Join(c.conf, "local"), "SPARK_CONF_DIR="+c.conf, "PYSPARK_PYTHON="+c.Python)
}

// environ returns the test's environment without the settings of another Spark.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return strings.HasPrefix(name, "SPARK_") || strings.HasPrefix(name, "PYSPARK_") || strings.HasPrefix(name, "HADOOP_")
	})
}

// Work returns the folder that contains a folder for each application, with a folder for each executor that
// contains its stdout and stderr.
func (c *Cluster) Work() string { return filepath.Join(c.dir, "work") }

func (o Options) withDefaults(t testing.TB) Options {
	t.Helper()
	if o.Python == "" {
		o.Python = clustertest.FindPython(t)
	}
	o.Host = cmp.Or(o.Host, "127.0.0.1")
	o.Workers, o.Cores, o.MemoryMiB = cmp.Or(o.Workers, 2), cmp.Or(o.Cores, 2), cmp.Or(o.MemoryMiB, 4096)
	return o
}

func findJava(t testing.TB) string {
	t.Helper()
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return filepath.Join(home, "bin", "java")
	}
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("missing: Java")
	}
	return java
}

// Home returns the folder of an interpreter's pyspark, which has the layout of a SPARK_HOME. It skips the
// test if there is none.
func Home(t testing.TB, python string) string {
	t.Helper()
	const find = `import importlib.util as u; s = u.find_spec("pyspark"); print(s.submodule_search_locations[0] if ` +
		`s else "")`
	out, err := exec.Command(python, "-c", find).Output()
	if err != nil {
		t.Fatalf("look for pyspark with %s: %v", python, err)
	}
	home := strings.TrimSpace(string(out))
	if home == "" {
		t.Skip("missing: pyspark")
	}
	return home
}

// scalaOf returns the Scala version, which a worker needs to start executors and which Spark's own start
// scripts determine.
func scalaOf(t testing.TB, home string) string {
	t.Helper()
	jars, err := filepath.Glob(filepath.Join(home, "jars", "spark-core_*.jar"))
	if err != nil || len(jars) != 1 {
		t.Fatalf("look for the one spark-core in %s: %q, %v", home, jars, err)
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(jars[0]), "spark-core_"), "-")
	return version
}

// configure creates the folder of sessions with their settings.
func (c *Cluster) configure() error {
	if err := os.MkdirAll(filepath.Join(c.conf, "local"), 0o700); err != nil {
		return err
	}
	settings := map[string]string{
		"spark.driver.extraJavaOptions": jvmFlags, "spark.executor.extraJavaOptions": c.JVMOptions(), "spark.ui.port": "0",
	}
	maps.Copy(settings, c.opts.Defaults)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s %s\n", name, settings[name])
	}
	return os.WriteFile(filepath.Join(c.conf, "spark-defaults.conf"), []byte(b.String()), 0o600)
}

var (
	masterURL = regexp.MustCompile(`Starting Spark master at (spark://\S+)`)
	masterUI  = regexp.MustCompile(`started service 'MasterUI' on port (\d+)`)
)

// startMaster starts the master and reads its ports from its log.
func (c *Cluster) startMaster(ctx context.Context) error {
	args := c.command("org.apache.spark.deploy.master.Master", c.opts.Host)
	d := c.start(&daemon{name: "master", args: args, env: c.daemonEnvironment(c.opts.Host)})
	for {
		text := d.text()
		url, ui := masterURL.FindStringSubmatch(text), masterUI.FindStringSubmatch(text)
		if url != nil && ui != nil {
			c.URL, c.UI = url[1], "http://"+c.opts.Host+":"+ui[1]
			return nil
		}
		select {
		case <-d.done:
			return fmt.Errorf("the Spark master ended before it listened:\n%s", tail(text))
		case <-ctx.Done():
			return fmt.Errorf("the Spark master does not listen after %s:\n%s", clustertest.Deadline, tail(text))
		case <-time.After(pollInterval):
		}
	}
}

// worker returns the next worker, which is not started yet.
func (c *Cluster) worker() *daemon {
	c.mu.Lock()
	i := len(c.daemons) - 1
	c.mu.Unlock()
	host, args := c.opts.Host, []string(nil)
	if c.opts.Wrap != nil {
		args, host = c.opts.Wrap(i)
	}
	args = slices.Concat(args, c.command("org.apache.spark.deploy.worker.Worker", host),
		[]string{
			"--cores", fmt.Sprint(c.opts.Cores), "--memory", fmt.Sprintf("%dM", c.opts.MemoryMiB), "--work-dir", c.Work(), c.URL,
		})
	return &daemon{name: fmt.Sprintf("worker-%d", i), args: args, env: c.daemonEnvironment(host)}
}

func (c *Cluster) command(class, host string) []string {
	args := append([]string{c.java, "-Xmx256m"}, strings.Fields(c.JVMOptions())...)
	for _, name := range slices.Sorted(maps.Keys(c.opts.Conf)) {
		args = append(args, "-D"+name+"="+c.opts.Conf[name])
	}
	return append(args, "-cp", c.classPath(), class, "--host", host, "--port", "0", "--webui-port", "0")
}

func (c *Cluster) daemonEnvironment(host string) []string {
	return append(environ(), "SPARK_HOME="+c.home, "SPARK_SCALA_VERSION="+c.scala, "SPARK_LOCAL_IP="+
		host, "SPARK_LOCAL_DIRS="+filepath.Join(c.conf, "local"), c.marker)
}

// start starts a daemon and adds it to the cluster.
func (c *Cluster) start(d *daemon) *daemon {
	c.t.Helper()
	d.log = filepath.Join(c.dir, d.name+".log")
	if err := d.start(c.dir); err != nil {
		c.t.Fatalf("start Spark's %s: %v", d.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.daemons = append(c.daemons, d)
	return d
}

// await polls the master until the condition holds.
func (c *Cluster) await(what string, holds func(State) bool) {
	c.t.Helper()
	var s State
	var err error
	for end := time.Now().Add(clustertest.Deadline); time.Now().Before(end); time.Sleep(pollInterval) {
		if s, err = c.State(); err == nil && holds(s) {
			return
		}
	}
	c.t.Fatalf("waited %s for %s: the master has %+v, %v\n%s", clustertest.Deadline, what, s, err, c.Logs())
}

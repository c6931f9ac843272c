package sparktest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// making is a session with one executor, whose driver loads what drivers, executors and
// daemons load.
const making = `
import sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local-cluster[1,1,512]").config("spark.executor.memory", "512m").getOrCreate()
until = time.monotonic() + 60
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 2 and time.monotonic() < until:
    time.sleep(0.1)
spark.stop()
`

// archive is a file of Java's with Spark's classes as they are after they were loaded and
// verified, which halves a JVM's start. It is made once and kept in the virtual environment
// whose pyspark it is of. It is "" where there is none: another Python, an old Java.
func archive(t testing.TB, python, java, home string) string {
	t.Helper()
	environment := filepath.Dir(filepath.Dir(python))
	if _, err := os.Stat(filepath.Join(environment, "pyvenv.cfg")); err != nil {
		return ""
	}
	real, err := filepath.EvalSymlinks(java)
	if err != nil {
		return ""
	}
	info, err := os.Stat(real)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Append(nil, real, info.ModTime(), home)) // Java refuses one of another Java
	path := filepath.Join(environment, fmt.Sprintf("sparktest-%x.jsa", sum[:4]))
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return ""
	}
	defer lock.Close() // and others go on
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return ""
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := makeArchive(t, path, python, home); err != nil {
			t.Logf("Spark's JVMs start slowly: %v", err)
			return ""
		}
	}
	return path
}

func makeArchive(t testing.TB, path, python, home string) error {
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	aside := path + ".new"
	if err := os.Remove(aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	cmd := exec.CommandContext(ctx, python, "-c", making)
	cmd.Dir = t.TempDir()
	cmd.Env = append(environ(), "SPARK_HOME="+home, "SPARK_LOCAL_IP=127.0.0.1", "SPARK_LOCAL_DIRS="+cmd.Dir,
		"PYSPARK_SUBMIT_ARGS=--conf spark.ui.enabled=false --driver-memory 512m --driver-java-options '"+cheap+" -XX:ArchiveClassesAtExit="+aside+"' pyspark-shell")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make an archive of Spark's classes: %w\n%s", err, tail(string(out)))
	}
	return os.Rename(aside, path)
}

// JVM are the options for the JVMs of sessions that tests make, drivers and executors: such
// as keep a JVM's start short and its size small.
func (c *Cluster) JVM() string {
	if c.archive == "" {
		return cheap
	}
	return cheap + " -XX:SharedArchiveFile=" + c.archive
}

// classPath is that of Spark's own scripts, which the archive is for.
func (c *Cluster) classPath() string {
	path := []string{filepath.Join(c.home, "conf")}
	if first, _ := filepath.Glob(filepath.Join(c.home, "jars", "slf4j-api-*.jar")); len(first) == 1 { // the pattern is well formed
		path = append(path, first[0])
	}
	return strings.Join(append(path, filepath.Join(c.home, "jars", "*")), ":")
}

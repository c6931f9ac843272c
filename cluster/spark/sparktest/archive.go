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

// archiveScript runs a session with one executor, whose driver loads the classes of drivers, executors and
// daemons.
const archiveScript = `
import sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local-cluster[1,1,512]").config("spark.executor.memory", "512m").getOrCreate()
until = time.monotonic() + 60
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 2 and time.monotonic() < until:
    time.sleep(0.1)
spark.stop()
`

// classArchive returns a file with Spark's loaded and verified classes (Java's AppCDS), which halves a
// JVM's start. It is created once, in the virtual environment with the pyspark. It returns "" if that
// fails: with another Python, or an old Java.
func classArchive(t testing.TB, python, java, home string) string {
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
	sum := sha256.Sum256(fmt.Append(nil, real, info.ModTime(), home)) // Java rejects the archive of another Java
	path := filepath.Join(environment, fmt.Sprintf("sparktest-%x.jsa", sum[:4]))
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return ""
	}
	defer lock.Close() // releases the lock
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
	cmd := exec.CommandContext(ctx, python, "-c", archiveScript)
	cmd.Dir = t.TempDir()
	cmd.Env = append(environ(), "SPARK_HOME="+home, "SPARK_LOCAL_IP=127.0.0.1", "SPARK_LOCAL_DIRS="+cmd.Dir,
		"PYSPARK_SUBMIT_ARGS=--conf spark.ui.enabled=false --driver-memory 512m --driver-java-options '"+jvmFlags+
			" -XX:ArchiveClassesAtExit="+aside+"' pyspark-shell")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("create an archive of Spark's classes: %w\n%s", err, tail(string(out)))
	}
	return os.Rename(aside, path)
}

// JVMOptions returns options for the JVMs of the tests' sessions, drivers and executors, which shorten
// their start and reduce their size.
func (c *Cluster) JVMOptions() string {
	if c.archive == "" {
		return jvmFlags
	}
	return jvmFlags + " -XX:SharedArchiveFile=" + c.archive
}

// classPath returns the class path of Spark's own scripts, for which the archive is made.
func (c *Cluster) classPath() string {
	path := []string{filepath.Join(c.home, "conf")}
	// The pattern is well formed.
	if first, _ := filepath.Glob(filepath.Join(c.home, "jars", "slf4j-api-*.jar")); len(first) == 1 {
		path = append(path, first[0])
	}
	return strings.Join(append(path, filepath.Join(c.home, "jars", "*")), ":")
}

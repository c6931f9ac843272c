package hadooptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Version returns the version of Hadoop that is started: $TFCLUSTER_TEST_HADOOP, or the default of make
// hadoop.
func Version() string {
	if v := os.Getenv("TFCLUSTER_TEST_HADOOP"); v != "" {
		return v
	}
	return "3.3.6"
}

// Jars returns the folder of Hadoop's jars, in the folder .hadoop of an enclosing folder. The test is skipped
// if they or java are missing.
func Jars(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("java is missing: no Hadoop to test with")
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		jars := filepath.Join(dir, ".hadoop", Version())
		if _, err := os.Stat(filepath.Join(jars, ".done")); err == nil {
			return jars
		}
		if dir == filepath.Dir(dir) {
			t.Skipf("Hadoop %s is missing: make hadoop", Version())
		}
	}
}

package spark_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
)

// with is the program with one more variable in its environment, which this process's has not.
func with(t *testing.T, name, value string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tfcluster")
	script := fmt.Sprintf("#!/bin/sh\nexport %s='%s'\nexec '%s' \"$@\"\n", name, value, clustertest.Program(t))
	executable.Write(t, path, script)
	return path
}

// TestOnYARN: Spark's executors may be YARN's containers.
func TestOnYARN(t *testing.T) {
	t.Parallel()
	hadoop := hadoop.Get(t)
	c := &sparktest.Cluster{URL: "yarn", Python: clustertest.FindPython(t)}
	h := own(t, c)
	h.Program = with(t, "HADOOP_CONF_DIR", hadoop.Conf)
	for key, value := range map[string]string{
		"spark.yarn.jars":                "local:" + sparktest.Home(t, c.Python) + "/jars/*", // not through HDFS
		"spark.yarn.am.memory":           "512m",
		"spark.yarn.am.extraJavaOptions": c.JVMOptions(),
	} {
		h.Reserve.Engine["conf."+key] = value
	}
	h.Reserve.Engine["queue"] = "default"
	cl := h.Start(t, "worker=2")
	if app := application(t, cl); !strings.HasPrefix(app, "application_") {
		t.Errorf("the application is %q", app)
	}
	again(t, cl)
	if found := hadoop.Containers(application(t, cl)); len(found) < 3 { // Spark's ApplicationMaster, and the executors
		t.Errorf("YARN's containers are %v", found)
	}
}

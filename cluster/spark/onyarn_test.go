package spark_test

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/spark/sparktest"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// TestOnYARN: Spark's executors may be YARN's containers. It sets a variable for all of
// the process, and so runs before the parallel tests.
func TestOnYARN(t *testing.T) {
	hadoop := hadooptest.Start(t, hadooptest.Options{HDFS: true, NodeManagers: 2})
	t.Setenv("HADOOP_CONF_DIR", hadoop.Conf)
	c := &sparktest.Cluster{URL: "yarn", Python: clustertest.FindPython(t)}
	h := own(c)
	for key, value := range map[string]string{
		"spark.yarn.jars":                "local:" + sparktest.Home(t, c.Python) + "/jars/*", // not through HDFS
		"spark.yarn.am.memory":           "512m",
		"spark.yarn.am.extraJavaOptions": cheap,
	} {
		h.Reserve.Engine["conf."+key] = value
	}
	h.Reserve.Engine["queue"] = "default"
	cl := h.Start(t, "worker=2")
	if app := application(t, cl); !strings.HasPrefix(app, "application_") {
		t.Errorf("the application is %q", app)
	}
	again(t, cl)
	if len(hadoop.Containers()) < 3 { // Spark's ApplicationMaster, and the executors
		t.Errorf("YARN's containers are %v", hadoop.Containers())
	}
}

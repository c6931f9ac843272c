package hosts

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// hadoopConf is the folder of Hadoop's configuration on every host.
const hadoopConf = "/tmp/hadoop/conf"

// hadoopSite starts HDFS and YARN on the hosts: the masters on one, a DataNode and a NodeManager on each worker.
func hadoopSite(t testing.TB) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("short: needs Hadoop")
	}
	jars := hadooptest.Jars(t)
	s := newSite(t, jars)
	for _, host := range append([]string{notebook, master}, workers...) {
		s.configure(host, jars)
	}
	env := []string{"HADOOP_CONF_DIR=" + hadoopConf, "HADOOP_USER_NAME=user"}
	java := func(heap int, class string, words ...string) []string {
		flags := []string{"java", fmt.Sprintf("-Xmx%dm", heap), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss512k"}
		for _, p := range []string{"java.lang", "java.net", "java.util", "java.util.concurrent", "java.io", "sun.nio.ch"} {
			flags = append(flags, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
		}
		flags = append(flags, "-Dhadoop.log.dir=/tmp/hadoop", "-Dyarn.log.dir=/tmp/hadoop", "-Dhadoop.home.dir=/tmp/hadoop",
			"-cp", hadoopConf+":/tmp/hadoop/web:"+filepath.Join(jars, "*"), "org.apache.hadoop."+class)
		return append(flags, words...)
	}
	format := java(128, "hdfs.server.namenode.NameNode", "-format", "-nonInteractive", "-force")
	if out, err := s.Command(t.Context(), master, env, format...).CombinedOutput(); err != nil {
		t.Fatalf("format HDFS: %v\n%s", err, out)
	}
	s.daemon(master, "Starting CacheReplicationMonitor", env, java(192, "hdfs.server.namenode.NameNode")...)
	s.daemon(master, "Transitioned to active state", env,
		java(320, "yarn.server.resourcemanager.ResourceManager")...)
	for _, host := range workers {
		s.daemon(host, "Successfully sent block report", env, java(160, "hdfs.server.datanode.DataNode")...)
		s.daemon(host, "Registered with ResourceManager", env, java(224, "yarn.server.nodemanager.NodeManager")...)
	}
	s.env = append(s.env, env...)
	s.options = []string{"--backend", "yarn", "--memory", "1g", "--cpus", "1", "--python", s.python}
	s.results = "hdfs:///results"
	s.cells = cells{"import numpy", s.options, "{'x': numpy.arange(n, dtype='f8')}"}
	return s
}

// configure writes Hadoop's configuration of a host.
func (s *site) configure(host, jars string) {
	s.t.Helper()
	files := map[string]map[string]string{
		"core-site.xml": {
			"fs.defaultFS": "hdfs://" + master + ":8020", "hadoop.tmp.dir": "/tmp/hadoop/tmp",
			"hadoop.http.staticuser.user": "user",
		},
		"hdfs-site.xml": {
			"dfs.replication": "1", "dfs.namenode.name.dir": "file:///tmp/hadoop/nn", "dfs.permissions.enabled": "false",
			"dfs.datanode.data.dir": "file:///tmp/hadoop/dn", "dfs.namenode.safemode.extension": "0",
			"dfs.heartbeat.interval": "1", "dfs.datanode.hostname": host, "dfs.namenode.handler.count": "4",
		},
		"yarn-site.xml": {
			"yarn.resourcemanager.hostname": master, "yarn.nodemanager.hostname": host,
			"yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity." +
				"CapacityScheduler",
			"yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100", "yarn.resourcemanager.am.max-attempts": "4",
			"yarn.scheduler.minimum-allocation-mb": "128", "yarn.nodemanager.resource.memory-mb": "6144",
			"yarn.nodemanager.resource.cpu-vcores": "4", "yarn.nodemanager.vmem-check-enabled": "false",
			"yarn.nodemanager.local-dirs": "/tmp/hadoop/local", "yarn.nodemanager.log-dirs": "/tmp/hadoop/logs",
			"yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
			"yarn.nodemanager.env-whitelist": "JAVA_HOME,HADOOP_CONF_DIR," +
				"PATH,LANG",
			"yarn.application.classpath": hadoopConf + "," + filepath.Join(jars, "*"),
		},
		"capacity-scheduler.xml": {
			"yarn.scheduler.capacity.root.queues": "default", "yarn.scheduler.capacity.root.default.capacity": "100",
			"yarn.scheduler.capacity.maximum-am-resource-percent":    "0.8",
			"yarn.scheduler.capacity.root.default.user-limit-factor": "10",
		},
	}
	folder := s.Path(host, hadoopConf)
	for _, below := range []string{
		folder, s.Path(host, "/tmp/hadoop/web/webapps/hdfs"), s.Path(host, "/tmp/hadoop/web/webapps/datanode"),
	} {
		if err := os.MkdirAll(below, 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	texts := map[string]string{
		"log4j.properties": "log4j.rootLogger=INFO,c\nlog4j.appender.c=org.apache.log4j.ConsoleAppender\n" +
			"log4j.appender.c.target=System.err\nlog4j.appender.c.layout=org.apache.log4j.SimpleLayout\n",
	}
	for name, properties := range files {
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			fmt.Fprintf(&b, "<property><name>%s</name><value>%s</value></property>\n", key, properties[key])
		}
		texts[name] = "<configuration>\n" + b.String() + "</configuration>\n"
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
}

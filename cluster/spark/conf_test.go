package spark

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func request(engine map[string]string, each ...*clusterpb.Resources) cluster.Request {
	req := cluster.Request{Cluster: "c", Reserve: &clusterpb.ReserveRequest{Engine: engine, Python: "/py"}}
	for i, r := range each {
		req.Executors = append(req.Executors, cluster.ExecutorRequest{ID: cluster.ExecutorID(rune('0' + i)), Each: r})
	}
	return req
}

func TestSettings(t *testing.T) {
	t.Parallel()
	size := &clusterpb.Resources{Cpus: 1.5, MemoryBytes: 3 << 30, Gpus: 2}
	engine := map[string]string{
		"master": "yarn", "queue": "night", "packages": "a:b:1", "conf.spark.executor.cores": "8",
		"conf.spark.app.name": "mine",
	}
	got := settings(request(engine, size, nil, &clusterpb.Resources{MemoryBytes: 1 << 30}), "10.1.2.3")
	for key, want := range map[string]string{
		"spark.master": "yarn", "spark.yarn.queue": "night", "spark.jars.packages": "a:b:1", "spark.executor.instances": "3",
		"spark.cores.max": "6", "spark.task.cpus": "2", "spark.executor.memoryOverhead": "3072m",
		"spark.executor.resource.gpu.amount": "2", "spark.task.resource.gpu.amount": "", "spark.pyspark.python": "/py",
		"spark.driver.host": "10.1.2.3", "spark.dynamicAllocation.enabled": "false", "spark.executor.cores": "8",
		"spark.app.name": "mine", // --conf stands over what we set
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if a, b := settings(request(nil, nil), "")["spark.connect.authenticate.token"],
		settings(request(nil, nil), "")["spark.connect.authenticate.token"]; len(a) < 20 || a == b {
		t.Errorf("tokens are %q and %q", a, b)
	}
}

func TestCheck(t *testing.T) {
	t.Setenv("SPARK_CONF_DIR", "")
	t.Setenv("SPARK_HOME", "")
	for _, c := range []struct {
		name   string
		engine map[string]string
		each   *clusterpb.Resources
		want   string
	}{
		{"nowhere", nil, nil, "which Spark?"},
		{"a master", map[string]string{"master": "local[2]"}, nil, ""},
		{"a master by --conf", map[string]string{"conf.spark.master": "local[2]"}, nil, ""},
		{"dynamic", map[string]string{"master": "x", "conf.spark.dynamicAllocation.enabled": "true"}, nil, "leave it out"},
		{"a session", map[string]string{"session": "spark"}, nil, ""},
	} {
		err := check(request(c.engine, c.each))
		if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	dir := t.TempDir()
	t.Setenv("SPARK_CONF_DIR", dir)
	if err := os.WriteFile(filepath.Join(dir, "spark-defaults.conf"), []byte("# no\nspark.master=spark://h:7077\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(request(nil, nil)); err != nil {
		t.Errorf("with a master in spark-defaults.conf: %v", err)
	}
}

// TestCause: of a session's log, the line that says why.
func TestCause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, log, want string }{
		{"empty", "", "its log is empty"},
		{"pyspark", "Traceback …\nModuleNotFoundError: No module named 'pyspark'\n", "the interpreter has no pyspark"},
		{
			"java", "/x/spark-class: line 71: /usr/bin/java: java: command not found\nJAVA_HOME is not set\n" +
				"RuntimeError: Java gateway process exited\n", "there is no Java",
		},
		{
			"master", "26/11/21 ERROR SparkContext: Error initializing SparkContext.\n\tat a.b(c)\n" +
				"Caused by: java.io.IOException: Failed to connect to h:7077\n\tat d\n", "Failed to connect to h:7077",
		},
		{"nothing of the kind", "one\ntwo\n", "two"},
	} {
		if got := cause(c.log); !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAdvertise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine map[string]string
		want   string
	}{
		{map[string]string{"master": "local[2]"}, "127.0.0.1"},
		{map[string]string{"master": "spark://127.0.0.1:7077,127.0.0.1:7078"}, "127.0.0.1"},
		{map[string]string{"master": "k8s://https://127.0.0.1"}, "127.0.0.1"},
		{map[string]string{"conf.spark.master": "local[2]"}, "127.0.0.1"},
		{map[string]string{"master": "yarn", "conf.spark.driver.host": "127.0.0.1"}, "127.0.0.1"},
		{map[string]string{"session": "spark", "host": "127.0.0.1"}, "127.0.0.1"},
	} {
		got, err := (&Backend{}).Advertise(t.Context(), &clusterpb.ReserveRequest{Engine: c.engine})
		if err != nil || got != c.want {
			t.Errorf("%v: %q, %v, want %q", c.engine, got, err, c.want)
		}
	}
	unknown := map[string]string{"master": "spark://no-such-host.invalid:7077"}
	if _, err := (&Backend{}).Advertise(t.Context(), &clusterpb.ReserveRequest{Engine: unknown}); err == nil ||
		!strings.HasSuffix(err.Error(), ": correct --master") {
		t.Errorf("an unknown master: error %v, want one that tells to correct --master", err)
	}
	if _, err := (&Backend{}).Advertise(t.Context(),
		&clusterpb.ReserveRequest{Engine: map[string]string{"master": "k8s://"}}); err == nil {
		t.Error("a master without a host is taken")
	}
	const elsewhere = "192.0.2.1" // of no machine
	session := map[string]string{"session": "spark", "host": elsewhere}
	if got, _ := (&Backend{}).Advertise(t.Context(), &clusterpb.ReserveRequest{Engine: session}); got == elsewhere {
		t.Error("the address of a Spark Connect server elsewhere is taken for this machine's")
	}
	asked := map[string]string{"master": "yarn", "conf.spark.driver.host": elsewhere}
	if _, err := (&Backend{}).Advertise(t.Context(), &clusterpb.ReserveRequest{Engine: asked}); err == nil ||
		!strings.Contains(err.Error(), "give --advertise HOST") {
		t.Errorf("an address that is not this machine's: %v", err)
	}
}

// TestMasterOfConf: --conf spark.master is the session's master as --master is, and overrides it.
func TestMasterOfConf(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "spark://" + ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, engine := range []map[string]string{
		{"master": closed}, {"conf.spark.master": closed}, {"master": "local[1]", "conf.spark.master": closed},
	} {
		r := &clusterpb.ReserveRequest{Engine: engine}
		if err := reachMaster(t.Context(), r); err == nil || !strings.Contains(err.Error(), closed) {
			t.Errorf("%v: %v", engine, err)
		}
		if got := (&Backend{}).InitialStatus(r); !strings.Contains(got, closed) {
			t.Errorf("%v: %s", engine, got)
		}
	}
}

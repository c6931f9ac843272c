package yarn_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
)

// program is the binary under test, built once.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tfcluster-yarn-test")
	if err == nil {
		if program, err = clustertest.Build(dir); err == nil {
			// Clusters of the tests are kept apart from the user's own.
			err = os.Setenv("TFCLUSTER_HOME", filepath.Join(dir, "state"))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// start runs a real Hadoop for the drivers that the test starts.
func start(t *testing.T, o hadooptest.Options) *hadooptest.Cluster {
	t.Helper()
	clustertest.FindPython(t) // else there is nothing to start Hadoop for
	h := hadooptest.Start(t, o)
	t.Setenv("HADOOP_CONF_DIR", h.Conf)
	return h
}

func harness(t testing.TB) clustertest.Harness {
	return clustertest.Harness{
		Program: program, Python: clustertest.FindPython(t), Reserve: &clusterpb.ReserveRequest{Backend: "yarn", IdleMillis: 60_000},
	}
}

func TestSuite(t *testing.T) {
	// A driver that died is missed for a minute before its tasks are ended.
	start(t, hadooptest.Options{HDFS: true, NodeManagers: 2, MasterExpiry: 5 * time.Minute})
	clustertest.Suite(t, harness(t))
}

// hello is a program that ends well.
const hello = "print('out of it')"

// forever is one that has to be ended.
const forever = "import time\nprint('here', flush=True)\nwhile True: time.sleep(0.05)"

// TestRefusals: what this YARN can never give is refused at once, in one line.
func TestRefusals(t *testing.T) {
	start(t, hadooptest.Options{HDFS: true, NodeManagers: 1, GPUs: 2, Labels: []string{"fast"}})
	for _, tt := range []struct {
		name   string
		change func(*clusterpb.ReserveRequest)
		want   string
	}{
		{"memory", func(r *clusterpb.ReserveRequest) { r.Roles[0].Each = &clusterpb.Resources{MemoryBytes: 1 << 40} }, "maximum-allocation-mb"},
		{"cores", func(r *clusterpb.ReserveRequest) { r.Roles[0].Each = &clusterpb.Resources{Cpus: 400} }, "maximum-allocation-vcores"},
		{"GPUs", func(r *clusterpb.ReserveRequest) { r.Roles[0].Each = &clusterpb.Resources{Gpus: 3} }, "asks for 3 GPUs, a container of this YARN may have 2"},
		{"label", func(r *clusterpb.ReserveRequest) { r.Roles[0].Each = &clusterpb.Resources{NodeLabel: "slow"} }, "it knows fast"},
		{"queue", func(r *clusterpb.ReserveRequest) { r.Engine = map[string]string{"queue": "nobody"} }, "nobody"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := harness(t).Launch(t, "worker=1", tt.change).Reserved()
			if !strings.Contains(f.GetSummary(), tt.want) || strings.Contains(f.GetSummary(), "\n") {
				t.Errorf("the failure is %v, want %q", f, tt.want)
			}
		})
	}
	t.Run("a full queue", waitsForQueue)
}

// waitsForQueue: who waits for a queue that is full, and why, is in the one line at the
// timeout, and everything is released.
func waitsForQueue(t *testing.T) {
	t.Parallel()
	c := harness(t).Launch(t, "worker=2", func(r *clusterpb.ReserveRequest) {
		r.Engine, r.TimeoutMillis = map[string]string{"queue": "ml"}, 5000
		r.Roles[0].Each = &clusterpb.Resources{MemoryBytes: 3 << 30}
	})
	f := c.Reserved()
	for _, want := range []string{"worker:", "queue ml has", "it needs 3072 MiB and 1 vcores"} {
		if !strings.Contains(f.GetSummary(), want) {
			t.Errorf("%q is not in the failure: %v", want, f)
		}
	}
}

// TestFaults: a cluster outlives its engine's troubles.
func TestFaults(t *testing.T) {
	h := start(t, hadooptest.Options{HDFS: true, NodeManagers: 2, Recovery: true, MasterExpiry: 5 * time.Minute})
	c := harness(t).Start(t, "worker=2")
	t.Run("the ResourceManager's restart is not noticed", func(t *testing.T) {
		r := c.Script(forever)
		r.Line("[worker:1] here")
		h.ResourceManager.Kill()
		h.ResourceManager.Start()
		c.Signal("worker:0", syscall.SIGTERM)
		if f := r.Wait().GetFailure(); f.GetTask() != "worker:0" {
			t.Errorf("failure is %v", f)
		}
		if st := c.Script(hello).Wait(); st.GetState() != "finished" {
			t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
		}
	})
	t.Run("containers that are too big are told as such", func(t *testing.T) {
		r := c.Script("x = bytearray(3 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1\n" + forever)
		if f := r.Wait().GetFailure(); !strings.Contains(f.GetSummary(), "ask for more memory") {
			t.Errorf("failure is %v", f)
		}
		if st := c.Script(hello).Wait(); st.GetState() != "finished" {
			t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
		}
	})
	t.Run("a node that is lost is replaced", func(t *testing.T) {
		r := c.Script(forever)
		r.Line("[worker:1] here")
		lost := 0
		for i := range h.NodeManagers {
			if strings.HasPrefix(h.NodeID(i), hostOf(t, c, "worker:1")+":") {
				lost = i
			}
		}
		h.NodeManagers[lost].Kill()
		if f := r.Wait().GetFailure(); f.GetKind() != "lost" || !strings.Contains(f.GetSummary(), "its node was lost") {
			t.Errorf("failure is %v", f)
		}
		if st := c.Script(hello).Wait(); st.GetState() != "finished" {
			t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
		}
		h.NodeManagers[lost].Start()
	})
	t.Run("an application that ended is followed by another", func(t *testing.T) {
		s, err := cluster.LoadState(c.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(s.Driver.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		kill(t, h, s.Allocation)
		ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
		defer cancel()
		client, err := cluster.Recover(ctx, program, c.Name)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		c.Client = client
		c.Ready()
		if st := c.Script(hello).Wait(); st.GetState() != "finished" {
			t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
		}
		if now, err := cluster.LoadState(c.Name); err != nil || now.Allocation == s.Allocation {
			t.Errorf("the state is %v: %v", now, err)
		}
	})
}

// hostOf is where a task's executor is.
func hostOf(t *testing.T, c *clustertest.Cluster, task string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range st.GetExecutors() {
		if x.GetTask() == task {
			return x.GetHost()
		}
	}
	t.Fatalf("nobody is %s: %v", task, st)
	return ""
}

// kill ends an application as its owner or an administrator may.
func kill(t *testing.T, h *hadooptest.Cluster, application string) {
	t.Helper()
	conf, err := hadoopconf.Load(h.Conf)
	if err != nil {
		t.Fatal(err)
	}
	user, err := hadoopconf.User()
	if err != nil {
		t.Fatal(err)
	}
	client, err := protocol.NewClient(conf, user, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	id, err := protocol.ParseApplication(application)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	if err := client.Kill(ctx, id, "the test ends it"); err != nil {
		t.Fatal(err)
	}
}

package yarn_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
)

// TestFaults: a cluster survives failures of YARN.
func TestFaults(t *testing.T) {
	// The nodes must not expire while the ResourceManager is paused for 15 s.
	h := startHadoop(t, hadooptest.Options{
		HDFS: true, NodeManagers: 2, Recovery: true, MasterExpiry: 5 * time.Minute, NodeExpiry: 20 * time.Second,
		Site: map[string]string{"yarn.log-aggregation-enable": "false"},
	})
	t.Run("two half-filled reservations are filled in turn", func(t *testing.T) { backsOff(t, h) })
	c := harness(t, h).Start(t, "worker=2")
	t.Run("a cluster survives the ResourceManager's restart", func(t *testing.T) {
		clusters := []*clustertest.Cluster{c, managed(t, h).Start(t, "worker=2")}
		var runs []*clustertest.Run
		for i, c := range clusters {
			runs = append(runs, c.Script(forever))
			runs[i].Line("[worker:1] here")
		}
		h.ResourceManager.Kill()
		h.ResourceManager.Start()
		for i, c := range clusters {
			c.Signal("worker:0", syscall.SIGTERM)
			if f := runs[i].Wait().GetFailure(); f.GetTask() != "worker:0" {
				t.Errorf("failure is %v", f)
			}
			if st := c.Script(hello).Wait(); st.GetState() != "finished" {
				t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
			}
		}
	})
	t.Run("a ResourceManager that does not answer ends nothing", func(t *testing.T) { survivesSilentManager(t, h) })
	t.Run("a container that exceeds its memory is reported as such", func(t *testing.T) {
		r := c.Script("x = bytearray(3 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1\n" + forever)
		if f := r.Wait().GetFailure(); !strings.Contains(f.GetSummary(), "ask for more memory") ||
			f.GetKind() != "out_of_memory" || !strings.Contains(f.GetRemedy(), "more --memory") {
			t.Errorf("failure is %v", f)
		}
		if st := c.Script(hello).Wait(); st.GetState() != "finished" {
			t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
		}
	})
	t.Run("a lost node is replaced", func(t *testing.T) {
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
	t.Run("an application that was killed is replaced", func(t *testing.T) {
		s, err := state.Load(c.Name)
		if err != nil {
			t.Fatal(err)
		}
		r := c.Script(forever)
		r.Line("[worker:1] here")
		kill(t, h, s.Allocation)
		if f := r.Wait().GetFailure(); !strings.Contains(f.GetSummary(), "the test ends it") {
			t.Errorf("failure is %v", f)
		}
		if st := c.Script(hello).Wait(); st.GetState() != "finished" {
			t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
		}
	})
	t.Run("the error if YARN aggregates no logs", func(t *testing.T) { reportsDisabledAggregation(t, h) })
	t.Run("an application that ended with its driver is replaced", func(t *testing.T) {
		s, err := state.Load(c.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(s.Driver.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		kill(t, h, s.Allocation)
		ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
		defer cancel()
		client, err := client.Recover(ctx, clustertest.Program(t), c.Name)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		c.Client = client
		c.Ready()
		if st := c.Script(hello).Wait(); st.GetState() != "finished" {
			t.Errorf("the next run is %s: %v", st.GetState(), st.GetFailure())
		}
		now, err := state.Load(c.Name)
		if err != nil || now.Allocation == s.Allocation {
			t.Errorf("the state is %v: %v", now, err)
		}
		listsBothApplications(ctx, t, h, c.Name, s.Allocation, now.Allocation)
	})
	c.End()
	t.Run("a node that cannot prepare containers is excluded", func(t *testing.T) { excludesNode(t, h) })
}

// hostOf returns the host of a task's executor.
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
	t.Fatalf("no executor for %s: %v", task, st)
	return ""
}

// kill kills an application as its owner or an administrator may do.
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

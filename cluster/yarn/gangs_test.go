package yarn_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
)

// sized requests containers of the given size in a queue.
func sized(queue string, gib int64) func(*clusterpb.ReserveRequest) {
	return func(r *clusterpb.ReserveRequest) {
		r.Engine = maps.Clone(r.GetEngine())
		r.Engine["queue"] = queue
		r.TimeoutMillis = 4 * time.Minute.Milliseconds()   // the back-off's interval is a fortieth of it
		r.IdleMillis = clustertest.Deadline.Milliseconds() // it waits, without a client, for the other one
		r.Roles[0].Each = &clusterpb.Resources{MemoryBytes: gib << 30}
	}
}

// backsOff: of two reservations that each hold half of what both need, one releases its containers, and
// both are filled, although the drivers of both are killed meanwhile. Two containers fit on each of the
// two nodes beside an ApplicationMaster: the first one's queue lets it have two, the second has the
// other two, and then the first one's queue lets it have them all.
func backsOff(t *testing.T, h *hadooptest.Cluster) {
	first := harness(t, h).Launch(t, "worker=3", sized("ml", 3))
	clustertest.WaitFor(t, "half of the first reservation", func() bool { return savedContainers(first) == 2 })
	second := managed(t, h).Launch(t, "worker=3", sized("default", 3))
	clustertest.WaitFor(t, "half of the second reservation", func() bool { return heldContainers(t, second) == 2 })
	h.Set(map[string]string{"yarn.scheduler.capacity.root.ml.maximum-capacity": "100"})
	refreshQueues(t, h)
	both := []*clustertest.Cluster{first, second}
	released := func(c *clustertest.Cluster) bool {
		return hasNote(t, c, "released its 2 of 3 containers for application_",
			", which is partially filled too; it asks again in about ")
	}
	clustertest.WaitFor(t, "the announcement of a release", func() bool {
		return slices.ContainsFunc(both, func(c *clustertest.Cluster) bool {
			return isPending(t, c, "unless more containers come, it releases its 2 of 3 in about ") || released(c)
		})
	})
	resumesApplication(t, first) // with another driver
	clustertest.WaitFor(t, "a release", func() bool {
		return slices.ContainsFunc(both, func(c *clustertest.Cluster) bool {
			return released(c) || heldContainers(t, c) == 3 // the driver that was killed may have released its own just before
		})
	})
	if err := syscall.Kill(int(driverPID(t, second)), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var served []*clustertest.Cluster
	clustertest.WaitFor(t, "one of them is filled", func() bool {
		for i, c := range both {
			if heldContainers(t, c) == 3 {
				served = []*clustertest.Cluster{c, both[1-i]}
				return true
			}
		}
		return false
	})
	if t.Failed() {
		return
	}
	// An application without containers keeps its place in the queue.
	waiting := harness(t, h).Launch(t, "worker=1", sized("default", 7))
	awaitPending(t, waiting, "it needs 7168 MiB and 1 vcores")
	resumesApplication(t, waiting)
	waiting.End()
	for _, c := range served {
		c.Ready()
		if st := c.Script(hello).Wait(); st.GetState() != "finished" {
			t.Errorf("the run is %s: %v", st.GetState(), st.GetFailure())
		}
		c.End()
	}
}

// hasNote reports whether a note of a cluster contains all of the texts.
func hasNote(t *testing.T, c *clustertest.Cluster, texts ...string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	return err == nil && slices.ContainsFunc(st.GetNotes(), func(n *clusterpb.Note) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(n.GetText(), text) })
	})
}

// driverPID returns the process of a cluster's driver.
func driverPID(t *testing.T, c *clustertest.Cluster) int32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return st.GetDriverPid()
}

// savedContainers returns the number of containers in a cluster's saved state.
func savedContainers(c *clustertest.Cluster) int {
	var saved struct {
		Executors map[string]struct{ Container []byte }
	}
	s, err := state.Load(c.Name)
	if err != nil || json.Unmarshal(s.Saved, &saved) != nil {
		return 0
	}
	n := 0
	for _, x := range saved.Executors {
		if x.Container != nil {
			n++
		}
	}
	return n
}

// heldContainers returns how many of a cluster's executors have a container.
func heldContainers(t *testing.T, c *clustertest.Cluster) int {
	t.Helper()
	st, err := c.Status(t.Context(), &clusterpb.StatusRequest{})
	if err != nil {
		return 0
	}
	n := 0
	for _, x := range st.GetExecutors() {
		if x.GetHost() != "" {
			n++
		}
	}
	return n
}

// awaitPending waits until the cause of a cluster's pending executor contains the text.
func awaitPending(t *testing.T, c *clustertest.Cluster, text string) {
	t.Helper()
	clustertest.WaitFor(t, text, func() bool { return isPending(t, c, text) })
}

// isPending reports whether the cause of an executor of a cluster contains the text.
func isPending(t *testing.T, c *clustertest.Cluster, text string) bool {
	t.Helper()
	st, err := c.Status(t.Context(), &clusterpb.StatusRequest{})
	return err == nil && slices.ContainsFunc(st.GetExecutors(),
		func(x *clusterpb.ExecutorStatus) bool { return strings.Contains(x.GetCause(), text) })
}

// allocationOf returns the application ID of a cluster.
func allocationOf(t *testing.T, c *clustertest.Cluster) string {
	t.Helper()
	s, err := state.Load(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	return s.Allocation
}

// resumesApplication kills the driver on this host, and checks that the next driver continues in the same
// application.
func resumesApplication(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	s, err := state.Load(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Driver.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clustertest.WaitFor(t, "the driver's end", func() bool { return !s.Driver.Alive() })
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	client, err := client.Recover(ctx, clustertest.Program(t), c.Name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Client = client
	clustertest.WaitFor(t, "the engine's answer", func() bool { return allocationOf(t, c) != "" })
	if now := allocationOf(t, c); now != s.Allocation {
		t.Errorf("the next driver continues in %s, want %s", now, s.Allocation)
	}
}

// refreshQueues makes the ResourceManager reload its queues.
func refreshQueues(t *testing.T, h *hadooptest.Cluster) {
	t.Helper()
	conf, user := hadoop(t, h)
	admin := ipc.NewClient([]string{conf.Get("yarn.resourcemanager.admin.address")}, clustertest.Deadline,
		ipc.Config{Protocol: "org.apache.hadoop.yarn.server.api.ResourceManagerAdministrationProtocolPB", User: user})
	defer admin.Close()
	if err := admin.Call(t.Context(), "refreshQueues", &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
		t.Fatal(err)
	}
}

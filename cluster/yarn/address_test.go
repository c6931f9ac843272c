package yarn_test

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// findsMovedDriver: agents find a recovered driver that cannot listen on its predecessor's address, as on a
// machine whose address has changed.
func findsMovedDriver(t *testing.T, h *hadooptest.Cluster) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	c := harness(t, h).Start(t, "worker=2")
	agents := func() (pids [2]int32, ready bool) {
		st, err := c.Status(ctx, &clusterpb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		ready = true
		for i, x := range st.GetExecutors() {
			pids[i], ready = x.GetPid(), ready && x.GetState() == "ready"
		}
		return pids, ready
	}
	before, _ := agents()
	s, err := state.Load(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Driver.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clustertest.WaitFor(t, "the driver's end", func() bool { return !s.Driver.Alive() })
	var other net.Listener // another process listens on the port now
	clustertest.WaitFor(t, "the driver's port to become free", func() bool {
		other, err = net.Listen("tcp", s.Address)
		return err == nil
	})
	t.Cleanup(func() { other.Close() })
	go func() { // ends with the listener
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	client, err := client.Recover(ctx, clustertest.Program(t), c.Name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Client = client
	clustertest.WaitFor(t, "the agents", func() bool { _, ready := agents(); return ready })
	if after, _ := agents(); after != before {
		t.Errorf("the agents are %v, they were %v", after, before)
	}
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	notes := ""
	for _, n := range st.GetNotes() {
		notes += n.GetText() + "\n"
	}
	if !strings.Contains(notes, "address for executors was "+s.Address+" and is ") {
		t.Errorf("the notes are:\n%s", notes)
	}
	if st := c.Script(hello).Wait(); st.GetState() != "finished" {
		t.Errorf("the run is %s", st.GetState())
	}
	c.End()
	store := openHDFS(t, h)
	defer store.Close()
	if left, err := store.List(ctx, ".tfcluster/applications"); err == nil {
		for _, k := range left {
			if k.Name() == s.Allocation {
				t.Errorf("%s is left on HDFS", k.Name())
			}
		}
	}
}

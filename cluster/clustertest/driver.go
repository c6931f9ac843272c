package clustertest

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
)

func testDriverKilled(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script(forever)
	r.Line("[worker:1] here")
	task, agent := int(c.Task("worker:0").GetPid()), c.executor("worker:0").GetPid()
	// The cluster's own: one that the engine runs is another than the one of the state.
	if err := syscall.Kill(int(driverOf(t, c.Client)), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	WaitFor(t, "the tasks' end without a driver", func() bool { return !state.ProcessOf(task).Alive() })
	if !state.ProcessOf(int(agent)).Alive() {
		t.Errorf("the agent did not wait for another driver")
	}
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	client, err := client.Recover(ctx, h.Program, c.Name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Client = client
	c.Ready()
	if now := c.executor("worker:0").GetPid(); now != agent {
		t.Errorf("the agent is another: %d, was %d", now, agent)
	}
	hist, err := c.History(ctx, &clusterpb.HistoryRequest{})
	if err != nil || len(hist.GetRuns()) != 1 ||
		!strings.Contains(hist.GetRuns()[0].GetFailure().GetSummary(), "driver died") {
		t.Errorf("history: %v, %v", hist, err)
	}
	if st := c.Script(hello).Wait(); st.GetState() != "finished" || st.GetId() != 2 {
		t.Errorf("run %d is %s: %v", st.GetId(), st.GetState(), st.GetFailure())
	}
}

func testIdle(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1", func(r *clusterpb.ReserveRequest) { r.IdleMillis = 1000 })
	agent := int(c.executor("worker:0").GetPid())
	WaitFor(t, "the idle cluster's release", func() bool { return !c.alive() })
	WaitFor(t, "its agent's end", func() bool { return !state.ProcessOf(agent).Alive() })
}

// concurrently makes n calls at the same time and returns their clients and errors.
func concurrently(n int, call func(context.Context) (*client.Client, error)) (clients []*client.Client, errs []error) {
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			c, err := call(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			} else {
				clients = append(clients, c)
			}
		})
	}
	wg.Wait()
	return clients, errs
}

func driverOf(t *testing.T, c *client.Client) int32 {
	t.Helper()
	return statusOf(t, c).GetDriverPid()
}

func testTwoRecover(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	s, err := state.Load(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Driver.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	WaitFor(t, "the driver's end", func() bool { return !c.alive() })
	clients, errs := concurrently(4,
		func(ctx context.Context) (*client.Client, error) { return client.Recover(ctx, h.Program, c.Name) })
	if len(errs) > 0 {
		t.Fatalf("recover: %v", errs)
	}
	c.Close()
	c.Client = clients[0]
	driver := driverOf(t, c.Client)
	for _, other := range clients[1:] {
		if d := driverOf(t, other); d != driver {
			t.Errorf("drivers %d and %d of one cluster", driver, d)
		}
		other.Close()
	}
	c.Ready()
	if st := c.Script(hello).Wait(); st.GetState() != "finished" {
		t.Errorf("the run is %s: %v", st.GetState(), st.GetFailure())
	}
}

func testOneName(t *testing.T, h Harness) {
	req := h.request(t, "worker=1")
	clients, errs := concurrently(4,
		func(ctx context.Context) (*client.Client, error) { return client.Launch(ctx, h.Program, req) })
	if len(clients) != 1 {
		t.Errorf("%d clusters have the name %s", len(clients), req.GetName())
	}
	for _, err := range errs {
		if !strings.Contains(err.Error(), "already exists") {
			t.Errorf("the other call failed with %q", err)
		}
	}
	for _, client := range clients {
		c := h.newCluster(t, client, req)
		c.Ready()
	}
}

func testCancelled(t *testing.T, h Harness) {
	c := h.Launch(t, "worker=2")
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	s, err := c.Client.Shutdown(ctx, &clusterpb.ShutdownRequest{Force: true, Reason: "cancelled"})
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

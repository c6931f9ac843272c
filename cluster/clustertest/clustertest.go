package clustertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Deadline bounds every wait of the suite: a test that reaches it has failed.
const Deadline = 5 * time.Minute

// Harness has what the suite needs from a backend's tests.
type Harness struct {
	// Program is the tfcluster binary; Python is an interpreter that has at least the standard library.
	Program, Python string
	// Reserve is the request on which all clusters of the suite are based.
	Reserve *clusterpb.ReserveRequest
	// AnyEngine adds the cases of Suite that no engine can affect: one backend has them.
	AnyEngine bool
	// RemoteResults is set if the driver stores the results elsewhere than on this host.
	RemoteResults bool
	// Launched, if it is not nil, is called with each launched cluster before its executors are ready.
	Launched func(t testing.TB, name string)
}

// FindPython returns the project's interpreter with TensorFlow: TFCLUSTER_TEST_PYTHON, or .venv in an
// enclosing folder. It skips the test with a message if there is none.
func FindPython(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("TFCLUSTER_TEST_PYTHON"); p != "" {
		return p
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		p := filepath.Join(dir, ".venv", "bin", "python")
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	t.Skip("missing: a Python environment with TensorFlow (make venv, or TFCLUSTER_TEST_PYTHON)")
	return ""
}

// Cluster is a running cluster under test.
type Cluster struct {
	*client.Client
	T   testing.TB
	Dir string

	endOnce *sync.Once
}

// Start launches a cluster with the given roles ("worker=2 ps=1") and waits until it is ready. At the
// test's end the cluster is shut down, and the test fails if anything is left.
func (h Harness) Start(t testing.TB, roles string, change ...func(*clusterpb.ReserveRequest)) *Cluster {
	t.Helper()
	c := h.Launch(t, roles, change...)
	c.Ready()
	return c
}

// Launch starts a cluster without waiting for its executors.
func (h Harness) Launch(t testing.TB, roles string, change ...func(*clusterpb.ReserveRequest)) *Cluster {
	t.Helper()
	req := h.request(t, roles, change...)
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	client, err := client.Launch(ctx, h.Program, req)
	if err != nil {
		t.Fatalf("launch: %v", err)
	}
	return h.newCluster(t, client, req)
}

// newCluster returns a cluster that ends with the test.
func (h Harness) newCluster(t testing.TB, client *client.Client, req *clusterpb.ReserveRequest) *Cluster {
	c := &Cluster{Client: client, T: t, Dir: req.GetDir(), endOnce: &sync.Once{}}
	if h.RemoteResults {
		c.Dir = req.GetWorkingDir()
	}
	t.Cleanup(c.End)
	if h.Launched != nil {
		h.Launched(t, client.Name)
	}
	return c
}

// request returns a reservation with a unique name.
func (h Harness) request(t testing.TB, roles string,
	change ...func(*clusterpb.ReserveRequest),
) *clusterpb.ReserveRequest {
	t.Helper()
	req := &clusterpb.ReserveRequest{
		Name: "t-" + strings.ToLower(rand.Text()[:12]), Backend: h.Reserve.GetBackend(), Python: h.Python,
		Zygote: h.Reserve.GetZygote(), Env: h.Reserve.GetEnv(), IdleMillis: h.Reserve.GetIdleMillis(),
		Engine: h.Reserve.GetEngine(), TimeoutMillis: Deadline.Milliseconds(), Dir: t.TempDir(), WorkingDir: t.TempDir(),
	}
	if h.RemoteResults {
		req.Dir = ""
	}
	for part := range strings.FieldsSeq(roles) {
		r := &clusterpb.Role{}
		if _, err := fmt.Sscanf(strings.Replace(part, "=", " ", 1), "%s %d", &r.Name, &r.Count); err != nil {
			t.Fatalf("roles %q: %v", roles, err)
		}
		req.Roles = append(req.Roles, r)
	}
	for _, f := range change {
		f(req)
	}
	return req
}

// Ready waits for the reservation.
func (c *Cluster) Ready() {
	c.T.Helper()
	if f := c.Reserved(); f != nil {
		c.T.Fatalf("reserve: %s\n%s", f.GetSummary(), c.driverLog())
	}
}

// Reserved waits until the reservation has succeeded or failed, and returns its failure, or nil.
func (c *Cluster) Reserved() *clusterpb.Failure {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	s, err := c.Reserve(ctx, &clusterpb.ReserveRequest{})
	if err != nil {
		c.T.Fatalf("reserve: %v", err)
	}
	for {
		u, err := s.Recv()
		if err != nil {
			c.T.Fatalf("reserve: %v\n%s", err, c.driverLog())
		}
		if u.GetReady() || u.GetFailure() != nil {
			return u.GetFailure()
		}
	}
}

func (c *Cluster) driverLog() string {
	dir, err := state.Dir(c.Name)
	if err != nil {
		return ""
	}
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*.log")) // the pattern is well formed
	for _, f := range append(files, filepath.Join(dir, "driver.log")) {
		if text, err := os.ReadFile(f); err == nil {
			fmt.Fprintf(&b, "== %s\n%s\n", filepath.Base(f), text)
		}
	}
	return b.String()
}

// End shuts the cluster down if it runs, and fails the test if anything is left. It is called at the test's
// end too.
func (c *Cluster) End() { c.endOnce.Do(c.end) }

func (c *Cluster) end() {
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	pids := c.pids(ctx)
	if c.T.Failed() {
		c.T.Log(c.driverLog())
	}
	s, err := c.Client.Shutdown(ctx, &clusterpb.ShutdownRequest{Force: true, Reason: "the test is over"})
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil { // it may have ended by itself; its end is checked below
		c.T.Logf("shutdown: %v", err)
	}
	c.Close()
	WaitFor(c.T, "the driver's end", func() bool { return !c.alive() })
	for _, pid := range pids {
		WaitFor(c.T, fmt.Sprintf("the end of process %d", pid), func() bool { return !state.ProcessOf(pid).Alive() })
	}
	gone := func(path string) {
		WaitFor(c.T, "the removal of "+path, func() bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) })
	}
	if dir, err := state.Dir(c.Name); err == nil {
		gone(dir)
	}
	if dir, err := state.SocketDir(c.Name); err == nil {
		gone(dir)
	}
}

func (c *Cluster) alive() bool {
	s, err := state.Load(c.Name)
	return err == nil && s.Driver.Alive()
}

// pids returns the processes of the cluster's agents and tasks.
func (c *Cluster) pids(ctx context.Context) []int {
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		return nil
	}
	var pids []int
	for _, x := range st.GetExecutors() {
		if x.GetPid() > 0 {
			pids = append(pids, int(x.GetPid()))
		}
	}
	for _, t := range st.GetRun().GetTasks() {
		if t.GetPid() > 0 {
			pids = append(pids, int(t.GetPid()))
		}
	}
	return pids
}

// WaitFor polls until the condition holds. At the deadline the test fails.
func WaitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Deadline); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Errorf("waited %s for %s", Deadline, what)
}

// statusOf returns a cluster's present status.
func statusOf(t testing.TB, c clusterpb.ControlClient) *clusterpb.ClusterStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	return st
}

// Task returns the present status of a task.
func (c *Cluster) Task(task string) *clusterpb.TaskStatus {
	c.T.Helper()
	st := statusOf(c.T, c)
	for _, t := range st.GetRun().GetTasks() {
		if t.GetTask() == task {
			return t
		}
	}
	c.T.Fatalf("no task %s in %v", task, st.GetRun())
	return nil
}

// Signal sends a signal to a task's process.
func (c *Cluster) Signal(task string, sig syscall.Signal) {
	c.T.Helper()
	pid := int(c.Task(task).GetPid())
	if pid <= 1 {
		c.T.Fatalf("task %s has no process", task)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		c.T.Fatalf("signal %s: %v", task, err)
	}
}

func (c *Cluster) executor(task string) *clusterpb.ExecutorStatus {
	c.T.Helper()
	for _, x := range statusOf(c.T, c).GetExecutors() {
		if x.GetTask() == task {
			return x
		}
	}
	c.T.Fatalf("no executor of %s", task)
	return nil
}

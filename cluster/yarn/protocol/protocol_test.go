package protocol_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// masterExpiry is the time after which the tests' ResourceManager expires a master.
const masterExpiry = 8 * time.Second

// retryFor is how long the tests' clients tolerate an outage of the ResourceManager.
const retryFor = time.Minute

// TestProtocol shares one YARN; the tests that stop daemons come last.
func TestProtocol(t *testing.T) {
	t.Parallel()
	h := hadooptest.Start(t, hadooptest.Options{
		NodeManagers: 2, GPUs: 2, Labels: []string{"", "fast"}, Recovery: true, MasterExpiry: masterExpiry,
		Protection: "authentication,integrity,privacy",
		// Keys are rolled over as often as this expiry permits.
		Site: map[string]string{"yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs": "25"},
	})
	y := &yarn{hadoop: h}
	var err error
	if y.conf, err = hadoopconf.Load(h.Conf); err != nil {
		t.Fatal(err)
	}
	if y.user, err = hadoopconf.User(); err != nil {
		t.Fatal(err)
	}
	t.Run("together", func(t *testing.T) {
		for _, tt := range []struct {
			name string
			test func(*testing.T, *yarn)
		}{
			{"containers run, are stopped and released", testContainers},
			{"each protection", testProtections},
			{"requests that YARN rejects", testRefusals},
			{"queries", testQueries},
			{"another process continues", testRecovery},
			{"no process can continue unless containers are kept", testNoRecovery},
			{"an expired master", testExpiry},
			{"keys are rolled over", testRollOver},
			{"a lost response", testLostAnswer},
			{"a repeated start of a container", testStartTwice},
			{"an excluded node", testExclude},
			{"requests that prefer a node", testLocality},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				tt.test(t, y)
			})
		}
	})
	t.Run("the ResourceManager's restart", func(t *testing.T) { testRestart(t, y) })
	t.Run("a NodeManager is lost", func(t *testing.T) { testNodeLost(t, y) })
	t.Run("no ResourceManager", func(t *testing.T) { testUnreachable(t, y) })
}

// yarn is the shared Hadoop.
type yarn struct {
	hadoop *hadooptest.Cluster
	conf   *hadoopconf.Conf
	user   string
}

func (y *yarn) client(t *testing.T) *protocol.Client {
	t.Helper()
	c, err := protocol.NewClient(y.conf, y.user, retryFor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// master is the master of one test's unmanaged application.
type master struct {
	*protocol.Master
	t         *testing.T
	y         *yarn
	ctx       context.Context
	id        *yarnpb.ApplicationId
	nodes     *protocol.Nodes
	completed map[string]*yarnpb.ContainerStatus
	allocated map[int64]*yarnpb.Container
	beats     int
}

// submit submits an unmanaged application and returns its master, which is not registered yet.
func submit(t *testing.T, y *yarn, change func(*yarnpb.ApplicationSubmissionContext)) *master {
	t.Helper()
	m := &master{
		t: t, y: y, ctx: deadline(t), completed: map[string]*yarnpb.ContainerStatus{},
		allocated: map[int64]*yarnpb.Container{},
	}
	c := y.client(t)
	var err error
	if m.id, _, err = c.NewApplication(m.ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Submit(m.ctx, submission(m.id, change)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // if the test failed
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := y.client(t).Kill(ctx, m.id, "the test is over"); err != nil && y.hadoop.ResourceManager != nil {
			t.Logf("kill %s: %v", protocol.ApplicationName(m.id), err)
		}
	})
	state, err := c.AwaitMasterToken(m.ctx, m.id, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.open(state)
	return m
}

func submission(id *yarnpb.ApplicationId,
	change func(*yarnpb.ApplicationSubmissionContext),
) *yarnpb.ApplicationSubmissionContext {
	s := &yarnpb.ApplicationSubmissionContext{
		ApplicationId: id, ApplicationName: new("test"), Queue: new("default"), ApplicationType: new("TFCLUSTER"),
		UnmanagedAm: new(true), KeepContainersAcrossApplicationAttempts: new(true), MaxAppAttempts: proto.Int32(1),
		Priority: &yarnpb.Priority{Priority: proto.Int32(0)}, AmContainerSpec: &yarnpb.ContainerLaunchContext{},
		Resource: protocol.MemoryAndCores(64, 1, nil),
	}
	if change != nil {
		change(s)
	}
	return s
}

func (m *master) open(state protocol.State) {
	m.t.Helper()
	opened, err := protocol.NewMaster(m.y.conf, state, retryFor)
	if err != nil {
		m.t.Fatal(err)
	}
	m.Master, m.nodes = opened, protocol.NewNodes(m.y.conf, retryFor)
	nodes := m.nodes
	m.t.Cleanup(func() {
		opened.Close()
		nodes.Close()
	})
}

func (m *master) register() *yarnpb.RegisterApplicationMasterResponse {
	m.t.Helper()
	r, err := m.Register(m.ctx, protocol.Contact{})
	if err != nil {
		m.t.Fatal(err)
	}
	m.nodes.Tokens(r.GetNmTokensFromPreviousAttempts())
	return r
}

// until sends heartbeats until done returns true.
func (m *master) until(what string, done func(protocol.Heartbeat) bool) {
	m.t.Helper()
	for {
		b, err := m.Allocate(m.ctx, 0)
		if err != nil {
			m.t.Fatalf("until %s: %v", what, err)
		}
		m.beats++
		m.nodes.Tokens(b.GetNmTokens())
		if b.Resynced != nil {
			m.nodes.Tokens(b.Resynced.GetNmTokensFromPreviousAttempts())
		}
		for _, c := range b.GetAllocatedContainers() {
			m.allocated[c.GetAllocationRequestId()] = c
		}
		for _, s := range b.GetCompletedContainerStatuses() {
			m.completed[protocol.ContainerName(s.GetContainerId())] = s
		}
		if done(b) {
			return
		}
		select {
		case <-m.ctx.Done():
			m.t.Fatalf("until %s: %v", what, m.ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// containers requests containers and waits for them.
func (m *master) containers(asks ...protocol.ContainerRequest) []*yarnpb.Container {
	m.t.Helper()
	m.Request(asks...)
	var got []*yarnpb.Container
	m.until("containers are allocated", func(protocol.Heartbeat) bool {
		got = nil
		for _, a := range asks {
			if c := m.allocated[a.ID]; c != nil {
				got = append(got, c)
			}
		}
		return len(got) == len(asks)
	})
	return got
}

func (m *master) start(c *yarnpb.Container, script string) {
	m.t.Helper()
	if err := m.nodes.Start(m.ctx, c, &yarnpb.ContainerLaunchContext{Command: []string{script}}); err != nil {
		m.t.Fatal(err)
	}
}

// awaitEnd waits until a container has completed.
func (m *master) awaitEnd(c *yarnpb.Container) *yarnpb.ContainerStatus {
	m.t.Helper()
	name := protocol.ContainerName(c.GetId())
	m.until("the end of "+name, func(protocol.Heartbeat) bool { return m.completed[name] != nil })
	return m.completed[name]
}

func (m *master) finish() {
	m.t.Helper()
	if err := m.Finish(m.ctx, yarnpb.FinalApplicationStatus_APP_SUCCEEDED, "well", ""); err != nil {
		m.t.Fatal(err)
	}
	r, err := m.y.client(m.t).Await(m.ctx, m.id,
		func(r *yarnpb.ApplicationReport) bool { return protocol.Ended(r.GetYarnApplicationState()) }, nil)
	if err != nil || r.GetFinalApplicationStatus() != yarnpb.FinalApplicationStatus_APP_SUCCEEDED {
		m.t.Errorf("finished as %v: %v", r, err)
	}
}

// small returns a request that fits on any node.
func small(id int64) protocol.ContainerRequest {
	return protocol.ContainerRequest{ID: id, Priority: 1, Resource: protocol.MemoryAndCores(64, 1, nil)}
}

func testContainers(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	gpu := protocol.ContainerRequest{
		ID: 3, Priority: 2, Resource: protocol.MemoryAndCores(128, 2, map[string]int64{"yarn.io/gpu": 2}),
	}
	fast := protocol.ContainerRequest{ID: 4, Priority: 3, Resource: protocol.MemoryAndCores(64, 1, nil), Label: "fast"}
	m.Request(small(9))
	m.Withdraw(9)
	got := m.containers(small(1), small(2), gpu, fast)
	if r := got[2].GetResource(); r.GetMemory() != 128 || r.GetVirtualCores() != 2 || gpus(r) != 2 {
		t.Errorf("the third container has %v", r)
	}
	if n := protocol.NodeName(got[3].GetNodeId()); n != y.hadoop.NodeID(1) {
		t.Errorf("the labelled container is on %s", n)
	}
	m.start(got[0], "exit 7")
	m.start(got[1], "exec sleep 300")
	m.start(got[2], "exec sleep 300")
	if s := m.awaitEnd(got[0]); s.GetExitStatus() != 7 {
		t.Errorf("completed as %v", s)
	}
	if s, err := m.nodes.Status(m.ctx, got[1].GetNodeId(), got[1].GetId()); err != nil ||
		s.GetState() == yarnpb.ContainerState_C_COMPLETE {
		t.Errorf("the second container is %v: %v", s, err)
	}
	if err := m.nodes.Stop(m.ctx, got[1].GetNodeId(), got[1].GetId()); err != nil {
		t.Error(err)
	}
	if s := m.awaitEnd(got[1]); s.GetExitStatus() == 0 {
		t.Errorf("completed as %v", s)
	}
	m.Release(got[2].GetId(), got[3].GetId())
	m.awaitEnd(got[2])
	m.awaitEnd(got[3])
	if m.allocated[9] != nil {
		t.Error("a request that was withdrawn before the heartbeat was allocated")
	}
	m.finish()
}

func gpus(r *yarnpb.Resource) int64 {
	for _, v := range r.GetResourceValueMap() {
		if v.GetKey() == "yarn.io/gpu" {
			return v.GetValue()
		}
	}
	return 0
}

// testProtections: calls of the ResourceManager and of NodeManagers work with each protection.
func testProtections(t *testing.T, y *yarn) {
	for _, p := range []string{"authentication", "integrity", "privacy"} {
		t.Run(p, func(t *testing.T) {
			t.Parallel()
			one := *y
			one.conf = y.conf.With("hadoop.rpc.protection", p)
			m := submit(t, &one, nil)
			m.register()
			c := m.containers(small(1))[0]
			m.start(c, "exit 3")
			if s := m.awaitEnd(c); s.GetExitStatus() != 3 {
				t.Errorf("completed as %v", s)
			}
			m.finish()
		})
	}
}

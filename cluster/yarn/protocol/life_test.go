package protocol_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// awaitProcesses sends heartbeats until n containers run the command.
func (m *master) awaitProcesses(command string, n int) {
	m.t.Helper()
	m.until("containers run", func(protocol.Heartbeat) bool {
		found := 0
		for _, running := range m.y.hadoop.Containers("") {
			if running == command {
				found++
			}
		}
		return found == n
	})
}

// testRecovery shows the recovery that doc.go describes. The driver's death is simulated by a master that
// neither finishes nor sends heartbeats.
func testRecovery(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	got := m.containers(small(1), small(2), small(3))
	for _, c := range got {
		m.start(c, "exec sleep 3001")
	}
	m.awaitProcesses("sleep 3001", 3)
	m.Release(got[2].GetId())
	m.awaitEnd(got[2])
	var hosts []string
	for i := range y.hadoop.NodeManagers {
		host, _, _ := strings.Cut(y.hadoop.NodeID(i), ":")
		hosts = append(hosts, host)
	}
	m.Exclude(hosts...)
	m.Request(small(9)) // nothing can be allocated
	m.until("it is requested", func(protocol.Heartbeat) bool { return true })
	saved := m.State()
	m.Close()
	m.nodes.Close()

	m.open(saved) // as the next process does
	r := m.register()
	if n := len(r.GetContainersFromPreviousAttempts()); n != 2 {
		t.Fatalf("%d containers came back", n)
	}
	for _, c := range r.GetContainersFromPreviousAttempts() {
		if s, err := m.nodes.Status(m.ctx, c.GetNodeId(), c.GetId()); err != nil ||
			s.GetState() != yarnpb.ContainerState_C_RUNNING {
			t.Errorf("%s is %v: %v", protocol.ContainerName(c.GetId()), s, err)
		}
	}
	m.awaitProcesses("sleep 3001", 2)
	if err := m.nodes.Stop(m.ctx, got[0].GetNodeId(), got[0].GetId()); err != nil {
		t.Error(err)
	}
	m.awaitEnd(got[0])
	m.WithdrawEarlier(small(9))
	m.Exclude(hosts...)
	m.until("the request is withdrawn", func(protocol.Heartbeat) bool { return true })
	m.Include(hosts...)
	more := m.containers(small(4))
	m.start(more[0], "exit 5")
	if s := m.awaitEnd(more[0]); s.GetExitStatus() != 5 {
		t.Errorf("the new container completed as %v", s)
	}
	if c := m.allocated[9]; c != nil {
		t.Errorf("the withdrawn request was allocated: %v", c)
	}
	m.finish() // ends the last container
}

func testNoRecovery(t *testing.T, y *yarn) {
	m := submit(t, y, func(s *yarnpb.ApplicationSubmissionContext) {
		s.KeepContainersAcrossApplicationAttempts = new(false)
	})
	m.register()
	saved := m.State()
	m.Close()
	m.open(saved)
	_, err := m.Register(m.ctx, protocol.Contact{})
	checkError(t, err, protocol.ErrRegistered)
	if err := y.client(t).Kill(m.ctx, m.id, "it cannot be resumed"); err != nil {
		t.Error(err)
	}
}

// testExpiry: the application of a master without heartbeats fails and its containers end, even if more
// attempts are allowed.
func testExpiry(t *testing.T, y *yarn) {
	m := submit(t, y, func(s *yarnpb.ApplicationSubmissionContext) { s.MaxAppAttempts = proto.Int32(3) })
	m.register()
	m.start(m.containers(small(1))[0], "exec sleep 3002")
	m.awaitProcesses("sleep 3002", 1)
	r, err := y.client(t).Await(m.ctx, m.id,
		func(r *yarnpb.ApplicationReport) bool { return protocol.Ended(r.GetYarnApplicationState()) }, nil)
	if err != nil || r.GetYarnApplicationState() != yarnpb.YarnApplicationState_FAILED {
		t.Errorf("the application is %v: %v", r, err)
	}
	_, err = m.Register(m.ctx, protocol.Contact{})
	checkError(t, err, protocol.ErrGone)
	_, err = m.Allocate(m.ctx, 0)
	checkError(t, err, protocol.ErrGone)
}

// testRollOver: a heartbeat's response has a new token, which is required for new connections once the old
// key has expired.
func testRollOver(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	first := m.State()
	m.until("there is a new token", func(b protocol.Heartbeat) bool { return b.Renewed })
	renewed := m.State()
	if string(renewed.Token.Identifier) == string(first.Token.Identifier) || renewed.Token.Kind != credentials.AMRM {
		t.Errorf("the new token is %v", &renewed.Token)
	}
	m.until("the old key has expired", func(protocol.Heartbeat) bool {
		c, err := ipc.Dial(m.ctx, y.hadoop.Host+
			":8030", ipc.Config{Protocol: "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB", Token: &first.Token})
		if err == nil {
			c.Close()
		}
		return ipc.IsException(err, "InvalidToken")
	})
	m.Close()
	m.open(m.State())
	m.register()
	m.containers(small(1))
	m.finish()
}

// testRestart: requests, releases and containers survive the ResourceManager's death.
func testRestart(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	got := m.containers(small(1), small(2))
	for _, c := range got {
		m.start(c, "exec sleep 3003")
	}
	m.awaitProcesses("sleep 3003", 2)
	y.hadoop.ResourceManager.Kill()
	m.Request(small(3))
	started := make(chan struct{})
	go func() {
		defer close(started)
		y.hadoop.ResourceManager.Start()
	}()
	m.until("the master has registered again", func(b protocol.Heartbeat) bool { return b.Resynced != nil })
	<-started
	m.awaitProcesses("sleep 3003", 2)
	more := m.containers(small(3))
	m.start(more[0], "exit 6")
	if s := m.awaitEnd(more[0]); s.GetExitStatus() != 6 {
		t.Errorf("the new container completed as %v", s)
	}
	if !strings.Contains(protocol.ContainerName(more[0].GetId()), "_e") {
		t.Errorf("%s has no epoch", protocol.ContainerName(more[0].GetId()))
	}
	m.Release(got[0].GetId())
	m.awaitEnd(got[0])
	m.finish()
}

// testNodeLost: containers of a lost node complete.
func testNodeLost(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	fast := small(1)
	fast.Label = "fast" // on the second node
	c := m.containers(fast)[0]
	m.start(c, "exec sleep 3004")
	m.awaitProcesses("sleep 3004", 1)
	y.hadoop.NodeManagers[1].Kill()
	if s := m.awaitEnd(c); s.GetExitStatus() != -100 || !strings.Contains(s.GetDiagnostics(), "lost") {
		t.Errorf("completed as %v", s)
	}
	m.finish()
	y.hadoop.NodeManagers[1].Start()
	for pid, words := range y.hadoop.Containers("") {
		t.Logf("left by the killed NodeManager, killed by the test: %d %s", pid, words)
		y.hadoop.KillContainer(pid)
	}
}

func testUnreachable(t *testing.T, y *yarn) {
	y.hadoop.ResourceManager.Kill()
	c, err := protocol.NewClient(y.conf, y.user, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _, err = c.NewApplication(deadline(t))
	checkError(t, err, protocol.ErrUnreachable, y.hadoop.Host+":8032")
}

package protocol_test

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// testLocality: requests that prefer a node are allocated there, or elsewhere if nothing can be allocated
// on the node, and can be withdrawn.
func testLocality(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	reports, err := y.client(t).NodeReports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	near := func(id int64, node int) protocol.ContainerRequest {
		host, _, _ := strings.Cut(y.hadoop.NodeID(node), ":")
		a := small(id)
		for _, r := range reports {
			if r.GetNodeId().GetHost() == host {
				a.Near = protocol.Locality{Host: host, Rack: r.GetRackName()}
			}
		}
		return a
	}
	host, _, _ := strings.Cut(y.hadoop.NodeID(0), ":")
	m.Exclude(host)
	m.Request(near(1, 0), near(2, 0))
	beats := 0
	m.until("YARN has the requests", func(protocol.Heartbeat) bool { beats++; return beats > 2 })
	m.Withdraw(1)
	m.until("YARN has the withdrawal", func(protocol.Heartbeat) bool { beats++; return beats > 4 })
	m.Include(host)
	// The other node has a label, so a request that prefers it is allocated elsewhere.
	got := m.containers(near(2, 0), near(3, 0), near(4, 1))
	for _, c := range got {
		if protocol.NodeName(c.GetNodeId()) != y.hadoop.NodeID(0) {
			t.Errorf("%s is on %v", protocol.ContainerName(c.GetId()), c.GetNodeId())
		}
	}
	beats = 0
	m.until("the node had time", func(protocol.Heartbeat) bool { beats++; return beats > heartbeats })
	if m.allocated[1] != nil {
		t.Error("the withdrawn request was allocated")
	}
	held, err := y.client(t).Containers(t.Context(),
		&yarnpb.ApplicationAttemptId{ApplicationId: m.id, AttemptId: new(int32(1))})
	if err != nil || len(held) != len(got) {
		t.Errorf("YARN has %d containers, want %d: %v", len(held), len(got), err)
	}
	m.finish()
}

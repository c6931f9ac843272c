package protocol_test

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// testNear: wishes that name a node are given there, or elsewhere where that one gives
// nothing to them, and are withdrawn as others.
func testNear(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	reports, err := y.client(t).NodeReports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	near := func(id int64, node int) protocol.Ask {
		host, _, _ := strings.Cut(y.hadoop.NodeID(node), ":")
		a := small(id)
		for _, r := range reports {
			if r.GetNodeId().GetHost() == host {
				a.Near = protocol.Spot{Host: host, Rack: r.GetRackName()}
			}
		}
		return a
	}
	host, _, _ := strings.Cut(y.hadoop.NodeID(0), ":")
	m.Exclude(host)
	m.Ask(near(1, 0), near(2, 0))
	beats := 0
	m.until("YARN has been told of them", func(protocol.Beat) bool { beats++; return beats > 2 })
	m.Withdraw(1)
	m.until("YARN has been told of that", func(protocol.Beat) bool { beats++; return beats > 4 })
	m.Include(host)
	// The other node is of another label: what names it comes from elsewhere.
	got := m.containers(near(2, 0), near(3, 0), near(4, 1))
	for _, c := range got {
		if protocol.NodeName(c.GetNodeId()) != y.hadoop.NodeID(0) {
			t.Errorf("%s is on %v", protocol.ContainerName(c.GetId()), c.GetNodeId())
		}
	}
	beats = 0
	m.until("the node has had the time", func(protocol.Beat) bool { beats++; return beats > heartbeats })
	if m.given[1] != nil {
		t.Error("what was withdrawn came")
	}
	held, err := y.client(t).Containers(t.Context(), &yarnpb.ApplicationAttemptId{ApplicationId: m.id, AttemptId: new(int32(1))})
	if err != nil || len(held) != len(got) {
		t.Errorf("YARN knows of %d containers, not %d: %v", len(held), len(got), err)
	}
	m.finish()
}

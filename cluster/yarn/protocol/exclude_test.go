package protocol_test

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
)

// heartbeats is the number of heartbeats after which a free node must have been used.
const heartbeats = 20

// testExclude: nothing is allocated on an excluded node, until it is included again.
func testExclude(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	host, _, _ := strings.Cut(y.hadoop.NodeID(0), ":")
	m.Exclude(host, "nobody.example.org")
	fast := protocol.ContainerRequest{ID: 2, Priority: 2, Resource: small(2).Resource, Label: "fast"}
	m.Request(small(1))
	m.containers(fast) // on the other node
	beats := 0
	m.until("the excluded node had time", func(protocol.Heartbeat) bool { beats++; return beats > heartbeats })
	if m.allocated[1] != nil {
		t.Errorf("%v was allocated on an excluded node", m.allocated[1])
	}
	m.Include(host)
	if got := m.containers(small(1)); protocol.NodeName(got[0].GetNodeId()) != y.hadoop.NodeID(0) {
		t.Errorf("the container is on %v", got[0].GetNodeId())
	}
	m.finish()
}

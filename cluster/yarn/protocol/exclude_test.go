package protocol_test

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
)

// heartbeats is after how many of ours a node that is free has given what was asked for.
const heartbeats = 20

// testExclude: a node that is excluded gives nothing, and again when it is not.
func testExclude(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	host, _, _ := strings.Cut(y.hadoop.NodeID(0), ":")
	m.Exclude(host, "nobody.example.org")
	fast := protocol.Ask{ID: 2, Priority: 2, Resource: small(2).Resource, Label: "fast"}
	m.Ask(small(1))
	m.containers(fast) // by the other node
	beats := 0
	m.until("the excluded node has had the time", func(protocol.Beat) bool { beats++; return beats > heartbeats })
	if m.given[1] != nil {
		t.Errorf("a node that is excluded gave %v", m.given[1])
	}
	m.Include(host)
	if got := m.containers(small(1)); protocol.NodeName(got[0].GetNodeId()) != y.hadoop.NodeID(0) {
		t.Errorf("it is on %v", got[0].GetNodeId())
	}
	m.finish()
}

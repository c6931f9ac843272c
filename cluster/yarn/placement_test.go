package yarn

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

func TestPlacements(t *testing.T) {
	t.Parallel()
	executors := func(n int, each *clusterpb.Resources) (all []cluster.ExecutorRequest) {
		for i := range n {
			all = append(all, cluster.ExecutorRequest{ID: cluster.ExecutorID(fmt.Sprint("e", i)), Each: each})
		}
		return all
	}
	node := func(host string, memory, used, gpus int64, labels ...string) *yarnpb.NodeReport {
		return &yarnpb.NodeReport{
			NodeId: &yarnpb.NodeId{Host: &host}, RackName: new("/r1"), NodeLabels: labels,
			Capability: protocol.MemoryAndCores(memory, 8, map[string]int64{gpuType: gpus}),
			Used:       protocol.MemoryAndCores(used, 0, nil),
		}
	}
	gib := &clusterpb.Resources{MemoryBytes: 1 << 30}
	for _, tt := range []struct {
		name      string
		executors []cluster.ExecutorRequest
		nodes     []*yarnpb.NodeReport
		want      map[string]int // executors for each host
	}{
		{"no node", executors(3, gib), nil, nil},
		{"as many nodes", executors(2, gib), []*yarnpb.NodeReport{
			node("a", 8192, 0, 0), node("b", 8192, 0, 0),
		}, map[string]int{"a": 1, "b": 1}},
		{"many nodes", executors(1, gib), []*yarnpb.NodeReport{
			node("a", 8192, 0, 0), node("b", 8192, 0, 0), node("c", 8192, 0, 0), node("d", 8192, 0, 0),
		}, nil},
		{"evenly", executors(4, gib), []*yarnpb.NodeReport{node("a", 8192, 0, 0), node("b", 8192, 0, 0)}, map[string]int{
			"a": 2,
			"b": 2,
		}},
		{
			"the last one on the node with more free memory", executors(3,
				gib), []*yarnpb.NodeReport{node("a", 8192, 1024, 0), node("b", 8192, 0, 0)}, map[string]int{"a": 1, "b": 2},
		},
		{
			"on the node with room", executors(4,
				gib), []*yarnpb.NodeReport{node("a", 8192, 7168, 0), node("b", 8192, 0, 0)}, map[string]int{"a": 1, "b": 3},
		},
		{"not on a full node", executors(4, gib), []*yarnpb.NodeReport{node("a", 2048, 0, 0)}, map[string]int{"a": 2}},
		{"by vcores", executors(9, nil), []*yarnpb.NodeReport{node("a", 65536, 0, 0)}, map[string]int{"a": 8}},
		{
			"by GPUs", executors(3, &clusterpb.Resources{Gpus: 1}),
			[]*yarnpb.NodeReport{node("a", 8192, 0, 0), node("b", 8192, 0, 4)},
			map[string]int{"b": 3},
		},
		{
			"a node with another label", executors(2,
				gib), []*yarnpb.NodeReport{node("a", 8192, 0, 0, "fast"), node("b", 8192, 0, 0)}, map[string]int{"b": 2},
		},
		{"for a label", executors(3, &clusterpb.Resources{NodeLabel: "fast"}), []*yarnpb.NodeReport{
			node("a", 8192, 0, 0, "fast"), node("b", 8192, 0, 0),
		}, nil},
		{"packed", executors(3, gib), []*yarnpb.NodeReport{
			node("a", 8192, 1024, 0), node("b", 8192, 0, 0), node("c", 8192, 0, 0), node("d", 8192, 2048, 0),
		}, map[string]int{"b": 3}},
		{"packed on two", executors(3, gib), []*yarnpb.NodeReport{
			node("a", 2048, 0, 0), node("b", 2048, 0, 0), node("c", 2048, 0, 0), node("d", 2048, 0, 0),
		}, map[string]int{"a": 2, "b": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := map[string]int{}
			for _, spot := range placements(tt.executors, tt.nodes, strings.HasPrefix(tt.name, "packed")) {
				if spot.Rack != "/r1" {
					t.Errorf("%v has another rack", spot)
				}
				got[spot.Host]++
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("placed as %v, want %v", got, tt.want)
			}
		})
	}
}

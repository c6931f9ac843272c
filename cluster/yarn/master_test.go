package yarn

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// TestMasterContainer: the container of a managed ApplicationMaster has the requested size and node
// label; its label does not apply to the other containers.
func TestMasterContainer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		engine map[string]string
		memory int64
		vcores int32
		heap   string
		label  string
		wrong  string
	}{
		{"by default", nil, 1024, 1, "768MiB", "", ""},
		{"with TensorBoard", map[string]string{"tensorboard": "true"}, 2048, 1, "768MiB", "", ""},
		{
			"larger",
			map[string]string{"am-memory": "4294967296", "am-cpus": "2", "tensorboard": "true"},
			5120, 2, "3072MiB", "", "",
		},
		{"on a node with a label", map[string]string{"am-node-label": "stable"}, 1024, 1, "768MiB", "stable", ""},
		{"too small", map[string]string{"am-memory": "1048576"}, 0, 0, "", "", "needs 256 MiB at least"},
	} {
		c := &yarnpb.ApplicationSubmissionContext{}
		err := describeMaster(c, masterInput{Program: cachedFile{URI: "hdfs://nn:8020/cache/x"}}, tt.engine)
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if c.GetResource().GetMemory() != tt.memory || c.GetResource().GetVirtualCores() != tt.vcores ||
			c.GetAmContainerSpec().GetEnvironment()[0].GetValue() != tt.heap {
			t.Errorf("%s: %v, heap %s", tt.name, c.GetResource(), c.GetAmContainerSpec().GetEnvironment()[0].GetValue())
		}
		label := ""
		for _, r := range c.GetAmContainerResourceRequest() {
			label += r.GetNodeLabelExpression()
			if !proto.Equal(r.GetCapability(), c.GetResource()) || r.GetResourceName() != "*" {
				t.Errorf("%s: the resource request is %v", tt.name, r)
			}
		}
		if label != tt.label || c.NodeLabelExpression != nil {
			t.Errorf("%s: label %q, the submission's label %q", tt.name, label, c.GetNodeLabelExpression())
		}
	}
}

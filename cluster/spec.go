package cluster

import (
	"encoding/json"
	"net"
	"strconv"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Spec is a cluster specification in the form of tf.train.ClusterSpec: for each role the
// addresses of its tasks, by index.
type Spec map[string][]string

// NewSpec returns the specification of tasks and their addresses. The indices of each role
// must begin at 0 and have no gap.
func NewSpec(addresses map[TaskID]string) (Spec, error) {
	spec := Spec{}
	for task := range addresses {
		if task.Role != Evaluator {
			spec[task.Role] = nil
		}
	}
	for role := range spec {
		for i := 0; ; i++ {
			a, ok := addresses[TaskID{Role: role, Index: i}]
			if !ok {
				break
			}
			spec[role] = append(spec[role], a)
		}
	}
	placed := 0
	for _, as := range spec {
		placed += len(as)
	}
	for task := range addresses {
		if task.Role == Evaluator {
			placed++
		}
	}
	if placed != len(addresses) {
		return nil, errtext.Fault("the tasks of the cluster are numbered with a gap (%v)", addresses)
	}
	return spec, nil
}

// JSON returns the specification as JSON, for ctx.cluster_spec.
func (s Spec) JSON() string { return mustJSON(s) }

// tfConfig returns TF_CONFIG for a task. The evaluator is not part of the cluster: it is the
// `task` of its own TF_CONFIG but not in `cluster` (the rule of tf.estimator and Keras). Roles
// that TensorFlow does not have are not in `cluster` either, since its strategies reject a
// specification with them.
func tfConfig(task TaskID) *clusterpb.SpecVariable {
	type taskConfig struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	return &clusterpb.SpecVariable{
		Name: "TF_CONFIG", Before: `{"cluster":`, Roles: []string{Chief, Worker, PS}, After: `,"task":` +
			mustJSON(taskConfig{task.Role, task.Index}) + "}",
	}
}

// HostPort returns the address of a peer, HOST:PORT.
func HostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// mustJSON encodes a value whose encoding cannot fail.
func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

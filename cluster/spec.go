package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Spec is a cluster specification as tf.train.ClusterSpec takes it: for each role
// the addresses of its tasks in order of their index.
type Spec map[string][]string

// NewSpec places every task at its address. Addresses must hold each task from
// index 0 on without a gap.
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
		return nil, fmt.Errorf("cluster specification: tasks are numbered with a gap: %v", addresses)
	}
	return spec, nil
}

// JSON is the specification alone, for ctx.cluster_spec.
func (s Spec) JSON() string { return mustJSON(s) }

// tfConfig is TF_CONFIG for a task. An evaluator stands outside the cluster it watches,
// so it is in its own TF_CONFIG's task but not among the roles (tf.estimator's and Keras's
// rule); nor are roles that TensorFlow does not know, for which its strategies would refuse
// the whole.
func tfConfig(task TaskID) *clusterpb.SpecVariable {
	type taskConfig struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	return &clusterpb.SpecVariable{
		Name: "TF_CONFIG", Before: `{"cluster":`, Roles: []string{Chief, Worker, PS}, After: `,"task":` + mustJSON(taskConfig{task.Role, task.Index}) + "}",
	}
}

// HostPort joins what a peer dials.
func HostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// mustJSON is for values that cannot fail to encode.
func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

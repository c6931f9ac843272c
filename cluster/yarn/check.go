package yarn

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// defaultMemory is the memory in MiB of an executor whose request has none.
const defaultMemory = 2048

const gpuType = "yarn.io/gpu"

// resource returns the container size for an executor's request.
func resource(each *clusterpb.Resources) *yarnpb.Resource {
	memory, cores := int64(defaultMemory), int32(1)
	if m := each.GetMemoryBytes(); m > 0 {
		memory = (m + 1<<20 - 1) >> 20
	}
	if c := each.GetCpus(); c > 0 {
		cores = int32(math.Ceil(c))
	}
	var further map[string]int64
	if g := each.GetGpus(); g > 0 {
		further = map[string]int64{gpuType: int64(g)}
	}
	return protocol.MemoryAndCores(memory, cores, further)
}

func gpus(r *yarnpb.Resource) int64 {
	for _, v := range r.GetResourceValueMap() {
		if v.GetKey() == gpuType {
			return v.GetValue()
		}
	}
	return 0
}

// check rejects a request that YARN would reject or could never fulfil: an unknown label or queue, or more
// than a container or any node may have. It returns the running nodes.
func check(ctx context.Context, client *protocol.Client, req cluster.Request,
	maximum *yarnpb.Resource,
) ([]*yarnpb.NodeReport, error) {
	if err := checkLabels(ctx, client, req); err != nil {
		return nil, err
	}
	nodes, err := client.NodeReports(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkNodes(req, nodes); err != nil {
		return nil, err
	}
	if err := checkMaximum(req, maximum); err != nil {
		return nil, err
	}
	q, err := client.Queue(ctx, queue(req))
	if err != nil {
		return nil, err
	}
	if q.GetState() != yarnpb.QueueState_Q_RUNNING {
		return nil, fmt.Errorf("queue %s accepts no applications: it is %s; --queue names another", queue(req),
			strings.ToLower(strings.TrimPrefix(q.GetState().String(), "Q_")))
	}
	return nodes, nil
}

// checkLabels rejects node labels that YARN does not have.
func checkLabels(ctx context.Context, client *protocol.Client, req cluster.Request) error {
	labels := map[string]bool{"": true}
	known, err := client.Labels(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, l := range known {
		labels[l.GetName()], names = true, append(names, l.GetName())
	}
	if label := req.Reserve.GetEngine()[masterLabelKey]; !labels[label] {
		return fmt.Errorf("--am-node-label %s: YARN does not know this label; %s", label, knownLabels(names))
	}
	for _, e := range req.Executors {
		if !labels[e.Each.GetNodeLabel()] {
			return fmt.Errorf("%s needs nodes with the label %q, which YARN does not know; %s",
				e.Task, e.Each.GetNodeLabel(), knownLabels(names))
		}
	}
	return nil
}

// knownLabels returns which labels can be given.
func knownLabels(names []string) string {
	if len(names) == 0 {
		return "it knows none: give no label"
	}
	return "give a label that it knows: " + strings.Join(names, ", ")
}

// checkMaximum rejects requests above the maximum container size.
func checkMaximum(req cluster.Request, maximum *yarnpb.Resource) error {
	for _, e := range req.Executors {
		r := resource(e.Each)
		switch {
		case r.GetMemory() > maximum.GetMemory():
			return errorAboveMaximum(e.Task, fmt.Sprintf("%d MiB of memory", r.GetMemory()),
				fmt.Sprintf("%d MiB (yarn.scheduler.maximum-allocation-mb)", maximum.GetMemory()))
		case r.GetVirtualCores() > maximum.GetVirtualCores():
			return errorAboveMaximum(e.Task, fmt.Sprintf("%d vcores", r.GetVirtualCores()),
				fmt.Sprintf("%d (yarn.scheduler.maximum-allocation-vcores)", maximum.GetVirtualCores()))
		case gpus(r) > gpus(maximum):
			return errorAboveMaximum(e.Task, fmt.Sprintf("%d GPUs", gpus(r)), fmt.Sprintf("%d (%s)", gpus(maximum), gpuType))
		}
	}
	return nil
}

// checkNodes rejects requests that fit on none of the running nodes. If no node runs, one may still start.
func checkNodes(req cluster.Request, nodes []*yarnpb.NodeReport) error {
	for _, e := range req.Executors {
		need, label := resource(e.Each), e.Each.GetNodeLabel()
		memory, cores, devices := int64(0), int32(0), int64(0) // the most of each on a node
		held, found := false, false
		for _, n := range nodes {
			if label != "" && !slices.Contains(n.GetNodeLabels(), label) {
				continue
			}
			has := n.GetCapability()
			held, found = held || fits(need, has), true
			memory, cores, devices = max(memory, has.GetMemory()), max(cores, has.GetVirtualCores()), max(devices, gpus(has))
		}
		where := "node"
		if label != "" {
			where = "node labelled " + label
		}
		switch {
		case held, len(nodes) == 0:
		case !found:
			return fmt.Errorf("%s needs a %s, but no node that is up is one: give another label, or wait for such a node",
				e.Task, where)
		default:
			return fmt.Errorf("%s requests %s, but no %s has that much: the most that one has is %d MiB, "+
				"%d vcores and %d GPUs; request less", e.Task, describeResource(need), where, memory, cores, devices)
		}
	}
	return nil
}

func errorAboveMaximum(t cluster.TaskID, asked, maximum string) error {
	return fmt.Errorf("%s requests %s, but a container of this YARN can have at most %s: request less", t, asked, maximum)
}

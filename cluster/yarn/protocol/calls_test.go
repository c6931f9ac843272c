package protocol

import (
	"context"
	"fmt"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Calls that only tests make.

// Stop stops the process of a container. It succeeds if the container has completed already.
func (n *Nodes) Stop(ctx context.Context, node *yarnpb.NodeId, id *yarnpb.ContainerId) error {
	action := fmt.Sprintf("stop %s on %s", ContainerName(id), NodeName(node))
	c, err := n.node(node)
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	r, err := call(ctx, c, "stopContainers", &yarnpb.StopContainersRequest{ContainerId: []*yarnpb.ContainerId{id}},
		&yarnpb.StopContainersResponse{})
	if err == nil {
		err = firstException(r.GetFailedRequests())
	}
	return explain(action, err)
}

// Status returns the status of a container.
func (n *Nodes) Status(ctx context.Context, node *yarnpb.NodeId,
	id *yarnpb.ContainerId,
) (*yarnpb.ContainerStatus, error) {
	action := fmt.Sprintf("query %s for %s", NodeName(node), ContainerName(id))
	c, err := n.node(node)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	r, err := call(ctx, c, "getContainerStatuses",
		&yarnpb.GetContainerStatusesRequest{ContainerId: []*yarnpb.ContainerId{id}}, &yarnpb.GetContainerStatusesResponse{})
	if err == nil {
		err = firstException(r.GetFailedRequests())
	}
	if err != nil {
		return nil, explain(action, err)
	}
	if len(r.GetStatus()) != 1 {
		return nil, fmt.Errorf("%s: the NodeManager described %d containers instead of one", action, len(r.GetStatus()))
	}
	return r.GetStatus()[0], nil
}

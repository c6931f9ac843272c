package protocol

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Nodes starts and stops containers on NodeManagers. Their tokens come from the
// ResourceManager: once for each node of an attempt, and again when keys are rolled
// over. It may be used from any goroutine.
type Nodes struct {
	config ipc.Config // without a token
	bridge time.Duration

	mu     sync.Mutex
	nodes  map[string]*ipc.Client // guarded by mu: by NodeName
	closed bool                   // guarded by mu
}

// NewNodes is for the configuration's NodeManagers. It tries for bridge to reach one.
func NewNodes(conf *hadoopconf.Conf, bridge time.Duration) *Nodes {
	return &Nodes{
		config: ipc.Config{Protocol: nodeProtocol, Protections: protections(conf)}, bridge: bridge, nodes: map[string]*ipc.Client{},
	}
}

// Close ends all connections and the calls that wait.
func (n *Nodes) Close() error {
	n.mu.Lock()
	nodes := n.nodes
	n.nodes, n.closed = nil, true
	n.mu.Unlock()
	var errs []error
	for _, c := range nodes {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Tokens takes the tokens that a heartbeat or a registration brought.
func (n *Nodes) Tokens(tokens []*yarnpb.NMToken) {
	for _, t := range tokens {
		name, config := NodeName(t.GetNodeId()), n.config
		config.Token = credentials.FromProto(t.GetToken())
		n.mu.Lock()
		known := n.nodes[name]
		if known == nil && !n.closed {
			n.nodes[name] = ipc.NewClient([]string{name}, n.bridge, config)
		}
		n.mu.Unlock()
		if known != nil {
			known.SetConfig(config)
		}
	}
}

func (n *Nodes) node(id *yarnpb.NodeId) (*ipc.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.nodes[NodeName(id)]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no token came for the NodeManager %s", NodeName(id))
}

// Start starts the process of a container. Once more is as good: the answer to the first
// time may have been lost.
func (n *Nodes) Start(ctx context.Context, c *yarnpb.Container, l *yarnpb.ContainerLaunchContext) error {
	what := fmt.Sprintf("start %s on %s", ContainerName(c.GetId()), NodeName(c.GetNodeId()))
	node, err := n.node(c.GetNodeId())
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	request := &yarnpb.StartContainersRequest{StartContainerRequest: []*yarnpb.StartContainerRequest{{ContainerLaunchContext: l, ContainerToken: c.GetContainerToken()}}}
	for pause := poll; ; pause = min(2*pause, time.Second) {
		r, err := call(ctx, node, "startContainers", request, &yarnpb.StartContainersResponse{})
		if err == nil {
			err = failed(r.GetFailedRequests())
		}
		if startedBefore(err) {
			return nil
		}
		if !ipc.IsException(err, "NMNotYetReadyException") {
			return explain(what, err)
		}
		select {
		case <-ctx.Done():
			return explain(what, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// startedBefore is a NodeManager's answer to a container's second start.
func startedBefore(err error) bool {
	e, ok := errors.AsType[*ipc.RemoteError](err)
	return ok && (strings.Contains(e.Text, "already is running on this node") || strings.Contains(e.Stack, "Attempt to relaunch the same container"))
}

// Stop ends the process of a container. One that has ended is as good.
func (n *Nodes) Stop(ctx context.Context, node *yarnpb.NodeId, id *yarnpb.ContainerId) error {
	what := fmt.Sprintf("stop %s on %s", ContainerName(id), NodeName(node))
	c, err := n.node(node)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r, err := call(ctx, c, "stopContainers", &yarnpb.StopContainersRequest{ContainerId: []*yarnpb.ContainerId{id}}, &yarnpb.StopContainersResponse{})
	if err == nil {
		err = failed(r.GetFailedRequests())
	}
	return explain(what, err)
}

// Status tells how a container is.
func (n *Nodes) Status(ctx context.Context, node *yarnpb.NodeId, id *yarnpb.ContainerId) (*yarnpb.ContainerStatus, error) {
	what := fmt.Sprintf("ask %s for %s", NodeName(node), ContainerName(id))
	c, err := n.node(node)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	r, err := call(ctx, c, "getContainerStatuses", &yarnpb.GetContainerStatusesRequest{ContainerId: []*yarnpb.ContainerId{id}}, &yarnpb.GetContainerStatusesResponse{})
	if err == nil {
		err = failed(r.GetFailedRequests())
	}
	if err != nil {
		return nil, explain(what, err)
	}
	if len(r.GetStatus()) != 1 {
		return nil, fmt.Errorf("%s: the answer tells of %d containers", what, len(r.GetStatus()))
	}
	return r.GetStatus()[0], nil
}

// failed is the first exception that a NodeManager lists.
func failed(list []*yarnpb.ContainerExceptionMap) error {
	for _, f := range list {
		e := f.GetException()
		return ipc.NewRemoteError(e.GetClassName(), e.GetMessage())
	}
	return nil
}

// MemoryAndCores is a Resource of memory in MiB and vcores, with count units of further
// types such as yarn.io/gpu.
func MemoryAndCores(memory int64, vcores int32, further map[string]int64) *yarnpb.Resource {
	r := &yarnpb.Resource{Memory: &memory, VirtualCores: &vcores}
	for name, count := range further {
		r.ResourceValueMap = append(r.ResourceValueMap, &yarnpb.ResourceInformation{
			Key: new(name), Value: new(count), Units: new(""), Type: yarnpb.ResourceTypes_COUNTABLE.Enum(),
		})
	}
	return r
}

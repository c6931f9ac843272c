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

// Nodes starts containers on NodeManagers. The ResourceManager sends a token for each of an
// attempt's nodes once, and again when keys are rolled over. Nodes is safe for concurrent use.
type Nodes struct {
	config   ipc.Config // without a token
	retryFor time.Duration

	mu     sync.Mutex
	nodes  map[string]*ipc.Client // guarded by mu: keys are NodeNames
	closed bool                   // guarded by mu
}

// NewNodes returns a client of the configuration's NodeManagers. Calls are retried for retryFor.
func NewNodes(conf *hadoopconf.Conf, retryFor time.Duration) *Nodes {
	return &Nodes{
		config: ipc.Config{Protocol: nodeProtocol, Protections: protections(conf)}, retryFor: retryFor,
		nodes: map[string]*ipc.Client{},
	}
}

// Close cancels pending calls and closes all connections.
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

// Tokens stores the tokens of a heartbeat's or a registration's response.
func (n *Nodes) Tokens(tokens []*yarnpb.NMToken) {
	for _, t := range tokens {
		name, config := NodeName(t.GetNodeId()), n.config
		config.Token = credentials.FromProto(t.GetToken())
		n.mu.Lock()
		known := n.nodes[name]
		if known == nil && !n.closed {
			n.nodes[name] = ipc.NewClient([]string{name}, n.retryFor, config)
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
	return nil, fmt.Errorf("YARN sent no token for the NodeManager %s: see the ResourceManager's log", NodeName(id))
}

// Start starts the process of a container. It may be repeated, since the response may have been lost.
func (n *Nodes) Start(ctx context.Context, c *yarnpb.Container, l *yarnpb.ContainerLaunchContext) error {
	action := fmt.Sprintf("start %s on %s", ContainerName(c.GetId()), NodeName(c.GetNodeId()))
	node, err := n.node(c.GetNodeId())
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	request := &yarnpb.StartContainersRequest{StartContainerRequest: []*yarnpb.StartContainerRequest{
		{ContainerLaunchContext: l, ContainerToken: c.GetContainerToken()},
	}}
	for pause := pollInterval; ; pause = min(2*pause, time.Second) {
		r, err := call(ctx, node, "startContainers", request, &yarnpb.StartContainersResponse{})
		if err == nil {
			err = firstException(r.GetFailedRequests())
		}
		if alreadyStarted(err) {
			return nil
		}
		if !ipc.IsException(err, "NMNotYetReadyException") {
			return explain(action, err)
		}
		select {
		case <-ctx.Done():
			return explain(action, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// alreadyStarted reports whether err is a NodeManager's response to a repeated start.
func alreadyStarted(err error) bool {
	e, ok := errors.AsType[*ipc.RemoteError](err)
	return ok && (strings.Contains(e.Text, "already is running on this node") ||
		strings.Contains(e.Stack, "Attempt to relaunch the same container"))
}

// firstException returns the first exception in a NodeManager's list, or nil.
func firstException(list []*yarnpb.ContainerExceptionMap) error {
	for _, f := range list {
		e := f.GetException()
		return ipc.NewRemoteError(e.GetClassName(), e.GetMessage())
	}
	return nil
}

// MemoryAndCores returns a Resource with memory in MiB, vcores, and counts of further resource types such as
// yarn.io/gpu.
func MemoryAndCores(memory int64, vcores int32, further map[string]int64) *yarnpb.Resource {
	r := &yarnpb.Resource{Memory: &memory, VirtualCores: &vcores}
	for name, count := range further {
		r.ResourceValueMap = append(r.ResourceValueMap, &yarnpb.ResourceInformation{
			Key: new(name), Value: new(count), Units: new(""), Type: yarnpb.ResourceTypes_COUNTABLE.Enum(),
		})
	}
	return r
}

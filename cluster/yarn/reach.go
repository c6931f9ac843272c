package yarn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// InitialStatus says what is awaited before YARN has taken the request.
func (b *Backend) InitialStatus(r *clusterpb.ReserveRequest) string {
	if q := r.GetEngine()["queue"]; q != "" {
		return "YARN is asked for an application in queue " + q
	}
	return "YARN is asked for an application"
}

// Advertise is the address of this machine from which the ResourceManager is reached,
// which its nodes should be able to dial.
func (b *Backend) Advertise(ctx context.Context, r *clusterpb.ReserveRequest) (string, error) {
	s, err := site.Find(r)
	if err != nil {
		return "", err
	}
	managers, err := protocol.ResourceManagers(s.Conf)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var problem error
	for _, m := range managers {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", m) // which sends nothing: it asks for the route
		if err == nil {
			defer conn.Close()
			return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
		}
		problem = err
	}
	return "", fmt.Errorf("find the way to the ResourceManager %s: %w; see HADOOP_CONF_DIR (%s)", strings.Join(managers, ", "), problem, s.Conf.Dir())
}

// dialTime is how long a peer may take to accept a connection.
const dialTime = 4 * time.Second

// reach tells at once that no ResourceManager is there. Later calls bear with one that
// is away for a while.
func reach(ctx context.Context, conf *hadoopconf.Conf) error {
	managers, err := protocol.ResourceManagers(conf)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	answers := make(chan error, len(managers))
	for _, m := range managers {
		go func() { answers <- dial(ctx, m) }() // ends with ctx
	}
	var problem error
	for range managers {
		if problem = <-answers; problem == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: no ResourceManager answers at %s: %w; see that it runs, and that %s is the configuration of this YARN",
		protocol.ErrUnreachable, strings.Join(managers, ", "), problem, conf.Dir())
}

// dial connects to a peer and leaves. An error is without the address.
func dial(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		return conn.Close()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return err
}

// An agent proves that it can dial the driver before it begins.
const (
	// UnreachableCode is the exit code of an agent's process that cannot.
	UnreachableCode = 97
	cannotDial      = "cannot dial the cluster's driver at "
)

// ErrDriver says that an agent's node cannot dial the driver: its process ends with
// UnreachableCode.
var ErrDriver = errors.New(cannotDial)

// proveReach is called by an agent's process.
func proveReach(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	if err := dial(ctx, address); err != nil {
		return fmt.Errorf("%w%s: %w", ErrDriver, address, err)
	}
	return nil
}

// unreachableWords name both hosts.
func unreachableWords(node, driver, diagnostics string, managed bool) string {
	here, err := os.Hostname()
	if err != nil {
		here = "the notebook's machine"
	}
	words := fmt.Sprintf("node %s %s%s on %s", node, cannotDial, driver, here)
	if _, why, ok := strings.Cut(containerlogs.ErrorLine(diagnostics), cannotDial+driver+": "); ok {
		words += ": " + why
	}
	if managed {
		return words + "; nodes must be able to dial one another"
	}
	return words + "; --advertise HOST[:PORTS] names an address of it that nodes can dial, and with --managed the driver runs on a node"
}

// proofs is how many executors that cannot dial the driver, and none that can, make it
// certain that the address is wrong, rather than a node.
const proofs = 3

// cutOff hears of an agent that could not dial the driver. over says that none can, so
// that no other container would help.
func (a *allocation) cutOff(s *yarnpb.ContainerStatus) (cause string, over bool) {
	name := protocol.ContainerName(s.GetContainerId())
	a.mu.Lock()
	defer a.mu.Unlock()
	failed, proved := 0, false
	for _, x := range a.executors {
		if x.container != nil && protocol.ContainerName(x.container.GetId()) == name {
			x.cutOff = true
			cause = unreachableWords(x.container.GetNodeId().GetHost(), x.driver, s.GetDiagnostics(), a.attempt != nil)
		} else if x.container != nil && time.Since(x.launched) > 2*dialTime {
			proved = true // its agent has got further
		}
		if x.cutOff {
			failed++
		}
	}
	return cause, !proved && failed >= min(proofs, len(a.executors))
}

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

// InitialStatus returns the status of a reservation until YARN has accepted the application.
func (b *Backend) InitialStatus(r *clusterpb.ReserveRequest) string {
	if q := r.GetEngine()["queue"]; q != "" {
		return "requesting a YARN application in queue " + q
	}
	return "requesting a YARN application"
}

// Advertise returns this machine's address on the route to the ResourceManager, which the nodes should be
// able to dial.
func (b *Backend) Advertise(ctx context.Context, r *clusterpb.ReserveRequest) (string, error) {
	s, err := site.Find(r)
	if err != nil {
		return "", err
	}
	managers, err := protocol.ResourceManagers(s.Conf)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var problem error
	for _, m := range managers {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", m) // sends nothing, only looks up the route
		if err == nil {
			defer conn.Close()
			return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
		}
		problem = err
	}
	return "", fmt.Errorf("find the route to the ResourceManager %s: %w; see HADOOP_CONF_DIR (%s)",
		strings.Join(managers, ", "), problem, s.Conf.Dir())
}

// dialTimeout bounds the time to connect to a peer.
const dialTimeout = 4 * time.Second

// checkReachable returns an error at once if no ResourceManager accepts connections. Later calls tolerate
// an outage.
func checkReachable(ctx context.Context, conf *hadoopconf.Conf) error {
	managers, err := protocol.ResourceManagers(conf)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
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
	return fmt.Errorf(
		"%w: no ResourceManager answers at %s: %w; see that it runs, and that %s is the configuration of this YARN",
		protocol.ErrUnreachable, strings.Join(managers, ", "), problem, conf.Dir())
}

// dial connects to a peer and closes the connection. The error does not contain the address.
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

// An agent checks that it can dial the driver before it starts.
const (
	// UnreachableCode is the exit code of an agent's process that cannot dial the driver.
	UnreachableCode = 97
	cannotDial      = "cannot dial the cluster's driver at "
)

// ErrDriverUnreachable means that an agent's node cannot dial the driver. The agent's process exits with
// UnreachableCode.
var ErrDriverUnreachable = errors.New(cannotDial)

// checkDriver returns ErrDriverUnreachable if this process cannot dial the driver. Agents call it.
func checkDriver(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if err := dial(ctx, address); err != nil {
		return fmt.Errorf("%w%s: %w", ErrDriverUnreachable, address, err)
	}
	return nil
}

// unreachableMessage returns the cause of a container's end whose agent could not dial the driver.
func unreachableMessage(node, driver, diagnostics string, managed bool) string {
	here, err := os.Hostname()
	if err != nil {
		here = "the notebook's machine"
	}
	message := fmt.Sprintf("node %s %s%s on %s", node, cannotDial, driver, here)
	if _, why, ok := strings.Cut(containerlogs.ErrorLine(diagnostics), cannotDial+driver+": "); ok {
		message += ": " + why
	}
	if managed {
		return message + "; nodes must be able to dial one another"
	}
	return message +
		"; --advertise HOST[:PORTS] names an address of it that nodes can dial, and with --managed the driver runs on a node"
}

// minUnreachable is the number of executors that cannot dial the driver after which, if no agent can, the
// address is known to be wrong, rather than a node's network.
const minUnreachable = 3

// handleUnreachable handles the end of a container whose agent could not dial the driver. terminated means
// that no agent can, so another container would not help.
func (a *allocation) handleUnreachable(s *yarnpb.ContainerStatus) (cause string, terminated bool) {
	name := protocol.ContainerName(s.GetContainerId())
	a.mu.Lock()
	defer a.mu.Unlock()
	failed, reachable := 0, false
	for _, x := range a.executors {
		if x.container != nil && protocol.ContainerName(x.container.GetId()) == name {
			x.driverUnreachable = true
			cause = unreachableMessage(x.container.GetNodeId().GetHost(), x.driver, s.GetDiagnostics(), a.attempt != nil)
		} else if x.container != nil && time.Since(x.launched) > 2*dialTimeout {
			reachable = true // its agent runs for longer than a failed check takes
		}
		if x.driverUnreachable {
			failed++
		}
	}
	return cause, !reachable && failed >= min(minUnreachable, len(a.executors))
}

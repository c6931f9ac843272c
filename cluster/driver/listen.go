package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/unixsock"
)

// advertise asks the backend which of this host's addresses executors can dial, unless
// --advertise names one.
func (d *driver) advertise(ctx context.Context) error {
	a, ok := d.engine.Backend.(cluster.RemoteEngine)
	if !ok || d.req.GetAdvertise() != "" {
		return nil
	}
	host, err := a.Advertise(ctx, d.req)
	if err != nil {
		return err
	}
	d.bind = host
	return nil
}

// portOf returns the port of a listener for TCP.
func portOf(ln net.Listener) string { return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port) }

// listenClients opens the socket for clients.
func (d *driver) listenClients() error {
	dir, err := state.SocketDir(d.name)
	if err != nil {
		return err
	}
	d.socket = filepath.Join(dir, "control.sock")
	if d.clients, err = unixsock.Listen(d.socket); err != nil {
		return fmt.Errorf("open the socket for notebooks and shells: %w", err)
	}
	return nil
}

// listen opens the port for agents. A driver that takes over prefers its predecessor's port,
// which agents dial; if another process uses that, the new address is published to them.
// Only the ports of --advertise are used if it names some: a firewall may close others.
func (d *driver) listen() error {
	host, ports, _ := strings.Cut(d.req.GetAdvertise(), ":")
	on := cmp.Or(d.bind, "127.0.0.1")
	if host != "" { // this host may resolve the name to another address than executors do
		on = ""
	}
	choice := portRange(ports)
	if d.old != nil {
		_, port, err := net.SplitHostPort(d.old.Address)
		if err != nil {
			return errtext.Fault("the saved address at which executors reach the driver, %q, has no port: %w",
				d.old.Address, err)
		}
		choice = append([]string{port}, choice...)
	}
	var err error
	for _, port := range choice {
		if d.agents, err = net.Listen("tcp", net.JoinHostPort(on, port)); err == nil {
			break
		}
	}
	if err != nil && ports != "" {
		do := "allow others"
		if errors.Is(err, unix.EADDRINUSE) {
			do = "end the process that uses it, or allow more ports"
		}
		err = fmt.Errorf("%w; --advertise %s allows no other port: %s", err, d.req.GetAdvertise(), do)
	}
	if err != nil {
		return fmt.Errorf("open the port to which executors connect: %w", err)
	}
	port := portOf(d.agents)
	if host == "" {
		host = cmp.Or(d.bind, "127.0.0.1")
	}
	d.address = net.JoinHostPort(host, port)
	return nil
}

// portRange returns the ports of "9000-9010" or "9000"; for "" it returns "0", any free port.
func portRange(ports string) []string {
	first, last, _ := strings.Cut(ports, "-")
	from, err := strconv.ParseUint(first, 10, 16)
	to, lastErr := strconv.ParseUint(cmp.Or(last, first), 10, 16)
	if err != nil || lastErr != nil || to < from {
		return []string{cmp.Or(first, "0")}
	}
	var all []string
	for p := from; p <= to; p++ {
		all = append(all, strconv.FormatUint(p, 10))
	}
	return all
}

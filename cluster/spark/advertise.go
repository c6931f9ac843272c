package spark

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// engineHost is where the notebook's session is dialled by its executors.
const engineHost = "host"

// Advertise is the address of this machine that executors can dial: the one their
// session's driver has, or the one from which the master is reached. A master that
// is this machine alone is reached at loopback. The driver of a session over Spark
// Connect may be elsewhere, and its address then says nothing.
func (b *Backend) Advertise(ctx context.Context, r *clusterpb.ReserveRequest) (string, error) {
	master := masterOf(r)
	if host := r.GetEngine()[engineHost]; host != "" {
		if address, err := addressOf(ctx, host); err == nil && isOurs(address) {
			return address, nil
		}
	}
	if host := r.GetEngine()[engineConf+"spark.driver.host"]; host != "" {
		address, err := addressOf(ctx, host)
		if err == nil && !isOurs(address) {
			err = fmt.Errorf("spark.driver.host %s is no address of this machine: --advertise HOST:PORTS says where executors reach it", host)
		}
		return address, err
	}
	switch {
	case strings.HasPrefix(master, "local"):
		return "127.0.0.1", nil
	case strings.HasPrefix(master, "spark://"):
		first, _, _ := strings.Cut(strings.TrimPrefix(master, "spark://"), ",")
		return toward(ctx, first)
	case strings.HasPrefix(master, "k8s://"):
		u, err := url.Parse(strings.TrimPrefix(master, "k8s://"))
		if err != nil || u.Hostname() == "" {
			return "", fmt.Errorf("--master %s: want k8s://https://HOST:PORT", master)
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		return toward(ctx, net.JoinHostPort(u.Hostname(), port))
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find this machine's address: %w; --advertise HOST gives it", err)
	}
	return addressOf(ctx, name)
}

// toward is the local address from which a peer is reached. It sends nothing: it
// asks for the route.
func toward(ctx context.Context, peer string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", peer)
	if err != nil {
		return "", fmt.Errorf("find the way to the Spark master %s: %w", peer, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// addressOf is a name's first address; an address stays as it is.
func addressOf(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return "", fmt.Errorf("find this machine's address: %w; --advertise HOST gives it", err)
	}
	return addrs[0], nil
}

// isOurs is whether this machine has an address, as far as it can be told.
func isOurs(address string) bool {
	ip := net.ParseIP(address)
	have, err := net.InterfaceAddrs()
	return err != nil || ip.IsLoopback() || slices.ContainsFunc(have, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

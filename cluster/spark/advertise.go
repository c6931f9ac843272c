package spark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// engineHost is the address of the notebook's Spark driver for executors.
const engineHost = "host"

// Advertise implements cluster.RemoteEngine. It returns the address of this machine that
// executors can dial: their session's driver address, or the local address of the route to the
// master, which is loopback for a master on this machine. The driver of a Spark Connect session
// may be on another host, and its address is then ignored.
func (b *Backend) Advertise(ctx context.Context, r *clusterpb.ReserveRequest) (string, error) {
	master := masterOf(r)
	if host := r.GetEngine()[engineHost]; host != "" {
		if address, err := addressOf(ctx, host, master); err == nil && isLocal(address) {
			return address, nil
		}
	}
	if host := r.GetEngine()[engineConf+"spark.driver.host"]; host != "" {
		address, err := addressOf(ctx, host, master)
		if err != nil {
			return "", fmt.Errorf("spark.driver.host %s: %w", host, err)
		}
		if !isLocal(address) {
			return "", fmt.Errorf("spark.driver.host %s is not an address of this machine: correct the setting, "+
				"or leave it out and give --advertise HOST", host)
		}
		return address, nil
	}
	switch {
	case strings.HasPrefix(master, "local"):
		return "127.0.0.1", nil
	case strings.HasPrefix(master, "spark://"):
		first, _, _ := strings.Cut(strings.TrimPrefix(master, "spark://"), ",")
		return routeAddress(ctx, first)
	case strings.HasPrefix(master, "k8s://"):
		u, err := url.Parse(strings.TrimPrefix(master, "k8s://"))
		if err != nil || u.Hostname() == "" {
			return "", fmt.Errorf("--master %s: want k8s://https://HOST:PORT", master)
		}
		return routeAddress(ctx, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find this machine's address: %w; --advertise HOST gives it", err)
	}
	return addressOf(ctx, name, master)
}

// routeAddress returns the local address of the route to a peer, without sending anything.
func routeAddress(ctx context.Context, peer string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", peer)
	if _, unknown := errors.AsType[*net.DNSError](err); unknown {
		return "", fmt.Errorf("the host of the Spark master %s is not known here: %w: correct --master", peer, err)
	}
	if err != nil {
		return "", fmt.Errorf("find this machine's address for the executors by the route to the Spark master %s: %w; "+
			"--advertise HOST gives it", peer, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// anywhere is an address that no network has (RFC 5737). The route to it is the one to other networks.
const anywhere = "192.0.2.1:9"

// addressOf returns an address of a name of this machine that executors can dial; an address is returned unchanged.
// Debian gives the machine's own name to 127.0.1.1, which another host cannot dial: then it is the local address of the
// route to the master, or to other networks.
func addressOf(ctx context.Context, name, master string) (string, error) {
	lookup, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(lookup, name)
	if err != nil {
		return "", fmt.Errorf("find this machine's address: %w; --advertise HOST gives it", err)
	}
	if i := slices.IndexFunc(addrs, func(a string) bool { return !net.ParseIP(a).IsLoopback() }); i >= 0 {
		return addrs[i], nil
	}
	if net.ParseIP(name) != nil || strings.HasPrefix(master, "local") {
		return addrs[0], nil
	}
	peer := anywhere
	if first, ok := strings.CutPrefix(master, "spark://"); ok {
		peer, _, _ = strings.Cut(first, ",")
	}
	if route, err := routeAddress(ctx, peer); err == nil {
		return route, nil
	}
	return addrs[0], nil
}

// isLocal reports whether an address is this machine's; true if that is unknown.
func isLocal(address string) bool {
	ip := net.ParseIP(address)
	have, err := net.InterfaceAddrs()
	return err != nil || ip.IsLoopback() || slices.ContainsFunc(have, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

package driver

import (
	"context"
	"net"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// addressEvery is between two looks whether executors have to dial this host elsewhere.
const addressEvery = 3 * time.Second

// watchAddress has agents find the driver where this host is now: a laptop that was in
// another network comes back with another address. Without a network it waits. serve
// answers agents behind a listener, until the driver ends.
func (d *driver) watchAddress(ctx context.Context, every time.Duration, serve func(net.Listener)) {
	a, ok := d.engine.Backend.(cluster.RemoteEngine)
	if !ok || !d.coord.Moves(ctx) {
		return
	}
	at, untold := d.bind, ""
	listens := map[string]string{d.bind: d.address} // where, on each address that this host has had
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		if host, err := a.Advertise(ctx, d.req); err == nil && host != at {
			if listens[host] == "" {
				ln, err := d.listenAt(host)
				if err != nil {
					d.log.Warn("listen for agents at this host's new address", "address", host, "err", err)
					continue
				}
				serve(ln)
				listens[host] = ln.Addr().String()
			}
			at, untold = host, listens[host]
		}
		if untold != "" && d.coord.Moved(ctx, untold) == nil {
			untold = ""
		}
	}
}

// listenAt opens a port for agents at another address of this host: the same one, if that
// is free there.
func (d *driver) listenAt(host string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(d.address)
	if err == nil {
		if ln, err := net.Listen("tcp", net.JoinHostPort(host, port)); err == nil {
			return ln, nil
		}
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

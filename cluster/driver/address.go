package driver

import (
	"context"
	"net"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// addressEvery is the interval of checks whether this host's address has changed.
const addressEvery = 3 * time.Second

// watchAddress publishes this host's new address to agents when it changes, e.g. when a
// laptop joins another network. Without a network it waits. serve serves agents on a
// listener until the driver ends.
func (d *driver) watchAddress(ctx context.Context, every time.Duration, serve func(net.Listener)) {
	a, ok := d.engine.Backend.(cluster.RemoteEngine)
	if !ok || !d.coord.CanPublishAddress(ctx) {
		return
	}
	at, unpublished := d.bind, ""
	listens := map[string]string{d.bind: d.address} // host → host:port, for all addresses so far
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
					d.log.Warn("agents cannot connect at this host's new address; it is tried again", "address", host, "err", err)
					continue
				}
				serve(ln)
				listens[host] = ln.Addr().String()
			}
			at, unpublished = host, listens[host]
		}
		if unpublished != "" && d.coord.PublishAddress(ctx, unpublished) == nil {
			unpublished = ""
		}
	}
}

// listenAt opens a port for agents at another address of this host, with the same number if
// that is free.
func (d *driver) listenAt(host string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(d.address)
	if err == nil {
		if ln, err := net.Listen("tcp", net.JoinHostPort(host, port)); err == nil {
			return ln, nil
		}
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

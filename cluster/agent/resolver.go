package agent

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/hdfs"
)

// resolveLimit bounds reading the driver's address.
const resolveLimit = 3 * time.Second

// resolver holds the coordinator's address, which changes if the engine restarts the driver on
// another node.
type resolver struct {
	file string // on HDFS, with the address; "" if that does not change
	open func() (*hdfs.FS, error)

	mu      sync.Mutex
	address string               // guarded by mu
	dialed  map[*dialed]struct{} // connections to address that are open; guarded by mu
}

// dialed is a connection that a resolver has made.
type dialed struct {
	net.Conn
	by *resolver
}

// Close implements net.Conn.
func (d *dialed) Close() error {
	d.by.mu.Lock()
	delete(d.by.dialed, d)
	d.by.mu.Unlock()
	return d.Conn.Close()
}

// dial connects to the coordinator's current address.
func (w *resolver) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	address := w.address
	w.mu.Unlock()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	d := &dialed{conn, w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dialed == nil {
		w.dialed = map[*dialed]struct{}{}
	}
	w.dialed[d] = struct{}{}
	return d, nil
}

// resolve reads the coordinator's address and returns whether it has changed. Connections to the old address are closed
// then: a host that has vanished closes none, and calls to the next driver must not wait for it. On errors it
// returns false; the caller tries again later.
func (w *resolver) resolve(ctx context.Context) (moved bool) {
	if w.file == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	f, err := w.open()
	if err != nil {
		return false
	}
	defer f.Close()
	b, err := f.Read(ctx, w.file)
	address := strings.TrimSpace(string(b))
	if _, _, serr := net.SplitHostPort(address); err != nil || serr != nil {
		return false
	}
	w.mu.Lock()
	moved = w.address != address
	w.address = address
	var old []*dialed
	if moved {
		old = slices.Collect(maps.Keys(w.dialed))
	}
	w.mu.Unlock()
	for _, conn := range old {
		_ = conn.Close() // nothing more comes from there
	}
	return moved
}

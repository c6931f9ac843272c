package agent

import (
	"context"
	"net"
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
	address string // guarded by mu
}

// dial connects to the coordinator's current address.
func (w *resolver) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	address := w.address
	w.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// resolve reads the coordinator's address and returns whether it has changed. On errors it
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
	defer w.mu.Unlock()
	moved = w.address != address
	w.address = address
	return moved
}

package agent

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/hdfs"
)

// findLimit bounds a look for where the driver is.
const findLimit = 3 * time.Second

// whereabouts is where the coordinator is dialled: always at the same address, unless
// its engine may start it again elsewhere.
type whereabouts struct {
	file string // on HDFS, holds the address; "" where it does not change
	open func() (*hdfs.FS, error)

	mu      sync.Mutex
	address string // guarded by mu
}

// dial connects to where the coordinator is now.
func (w *whereabouts) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	address := w.address
	w.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// look finds out whether the coordinator is elsewhere now. HDFS that does not answer is
// asked again the next time.
func (w *whereabouts) look(ctx context.Context) (moved bool) {
	if w.file == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, findLimit)
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

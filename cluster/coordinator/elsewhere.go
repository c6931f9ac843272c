package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// Spool keeps runs whose directory is not on this host: in a folder here, from which
// they are carried there.
type Spool interface {
	runfiles.Storage
	Fetcher
	// Folder is where the runs lie on this host.
	Folder() string
	// Flush carries what is here now. It fails once nothing has arrived there for as
	// long as patience.
	Flush(ctx context.Context, patience time.Duration) error
	// OnNotice calls note with each message for users from now on.
	OnNotice(note func(text string))
}

// Fetcher copies here what lies elsewhere alone.
type Fetcher interface {
	// Fetch copies a file, or all below a folder, that does not lie here.
	Fetch(ctx context.Context, name string) error
	// FetchAll is Fetch for one folder of every run.
	FetchAll(ctx context.Context, folder string) error
}

// How long what lies elsewhere is waited for.
const (
	deliverAtRun = 10 * time.Second // by who waits for a run's end
	deliverAtEnd = 10 * time.Minute // by the cluster's end, while it gets on
	endPatience  = 15 * time.Second // of which: without a file that arrives
	bringLimit   = 30 * time.Minute // by a start that takes up checkpoints
	bringShow    = 20 * time.Second // by who asks for lines or TensorBoard
)

// deliver carries what a run has left, for who waits for its end, and says so where it
// does not get there at once.
func (c *Coordinator) deliver(ctx context.Context, run int32) {
	if c.cfg.Spool == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, deliverAtRun)
	defer cancel()
	if err := c.cfg.Spool.Flush(limited, 0); err != nil {
		c.log.Warn("deliver", "run", run, "err", err)
		// In the loop before the last update is made, which is to show it. A cluster
		// that is over shows nothing any more.
		_ = c.call(ctx, func() {
			c.noteOnce(fmt.Sprintf("run %d: what it left is not yet in %s, and follows: it is on the driver's host in %s", run, c.cfg.Dir, c.files.folder()))
		})
	}
}

// showAll copies the event files of all runs. TensorBoard finds what comes later.
func (c *Coordinator) showAll(ctx context.Context) error {
	if c.cfg.Spool == nil {
		return nil
	}
	done := make(chan error, 1)
	c.work.Go(func() { done <- c.cfg.Spool.FetchAll(c.working, "logs") })
	select {
	case err := <-done:
		return err
	case <-time.After(bringShow):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errElsewhere = errors.New("TensorBoard shows folders of this host and of the cluster's --dir")

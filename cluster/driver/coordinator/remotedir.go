package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// Spool stores the runs in a folder of this host and writes them back to a remote directory.
type Spool interface {
	runfiles.Storage
	Fetcher
	// Folder returns the folder of the runs on this host.
	Folder() string
	// Flush waits until all files are in the remote directory. It fails after patience without
	// progress.
	Flush(ctx context.Context, patience time.Duration) error
	// OnNotice sets the function that is called with each message for users.
	OnNotice(note func(text string))
}

// Fetcher fetches files of the remote directory that are missing on this host.
type Fetcher interface {
	// Fetch fetches a file or folder that is missing here.
	Fetch(ctx context.Context, name string) error
	// FetchAll fetches one folder of every run.
	FetchAll(ctx context.Context, folder string) error
}

// Time limits of transfers from and to the remote directory.
const (
	flushAtRunEnd    = 10 * time.Second // of a flush at a run's end
	flushAtEnd       = 10 * time.Minute // of the flush at the cluster's end, with progress
	flushStall       = 15 * time.Second // of that flush without progress
	resumeFetchLimit = 30 * time.Minute // of fetching the checkpoints for --resume
	showFetchLimit   = 20 * time.Second // of fetching lines or event files to show
)

// deliver flushes a run's files for clients that wait for its end, and adds a note if that
// takes longer.
func (c *Coordinator) deliver(ctx context.Context, run int32) {
	if c.cfg.Spool == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, flushAtRunEnd)
	defer cancel()
	if err := c.cfg.Spool.Flush(limited, 0); err != nil {
		c.log.Warn("the run's files are not all in the cluster's directory yet; it is tried again", "run", run, "err", err)
		// The note is added in the loop before the last update, which shows it. After the
		// cluster's end it is dropped.
		_ = c.call(ctx, func() {
			c.noteOnce(fmt.Sprintf("run %d: its files are not all in %s yet: they are still being written, "+
				"from %s on the driver's host", run, c.cfg.Dir, c.files.folder()))
		})
	}
}

// showAll fetches the event files of all runs, in the background if that takes longer.
func (c *Coordinator) showAll(ctx context.Context) error {
	if c.cfg.Spool == nil {
		return nil
	}
	done := make(chan error, 1)
	c.work.Go(func() { done <- c.cfg.Spool.FetchAll(c.working, "logs") })
	select {
	case err := <-done:
		return err
	case <-time.After(showFetchLimit):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errOtherHost = errors.New("TensorBoard can show only folders on the driver's host or below the cluster's --dir: " +
	"name one of those, or copy the folder there")

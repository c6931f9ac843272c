package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// hostLock is the file in a host's folder on which each agent of the host holds a shared lock.
const hostLock = "alive"

// keepHostFolder creates and locks the folder that a cluster's agents on one host share, for
// the zygote. The last agent that calls release removes it; after a crash the next agent that
// finds it unlocked does.
func keepHostFolder(ctx context.Context, dir string) (release func(), err error) {
	var f *os.File
	for range hostTries { // another agent may remove it meanwhile
		if err = prepareFolder(dir); err == nil {
			f, err = lockfile.Open(ctx, filepath.Join(dir, hostLock), lockfile.Shared)
		}
		if err == nil {
			return func() {
				if lockfile.Try(f, lockfile.Exclusive) == nil { // this is the last agent
					os.RemoveAll(dir)
				}
				f.Close()
			}, nil
		}
		time.Sleep(hostPause)
	}
	return nil, fmt.Errorf("open and lock the folder that the executors of this host share: %w", err)
}

// Attempts to create the folder while others remove it, and the pause between them.
const (
	hostTries = 100
	hostPause = 2 * time.Millisecond
)

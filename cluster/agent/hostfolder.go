package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/cluster/lockfile"
)

// hostLock is the file in a host's folder on which each of its agents holds a shared lock.
const hostLock = "alive"

// keepHostFolder makes the folder that a cluster's agents on one host share, for Python
// that has imported TensorFlow once for all of them, and holds it. The last agent to
// call release removes it; a killed one's goes when somebody finds the lock free.
func keepHostFolder(ctx context.Context, dir string) (release func(), err error) {
	var f *os.File
	for range hostTries { // another may remove it at any moment of its making
		if f, err = holdHostFolder(ctx, dir); err == nil {
			return func() { leaveHostFolder(dir, f) }, nil
		}
		time.Sleep(hostPause)
	}
	return nil, fmt.Errorf("hold the folder of this host's agents: %w", err)
}

// How often the folder may be removed while it is made, and what is between two tries.
const (
	hostTries = 100
	hostPause = 2 * time.Millisecond
)

// holdHostFolder makes the folder and locks it.
func holdHostFolder(ctx context.Context, dir string) (*os.File, error) {
	if err := prepareFolder(dir); err != nil {
		return nil, err
	}
	return lockfile.Open(ctx, filepath.Join(dir, hostLock), lockfile.Shared)
}

func leaveHostFolder(dir string, f *os.File) {
	if lockfile.Try(f, lockfile.Exclusive) == nil { // nobody else is there
		os.RemoveAll(dir)
	}
	f.Close()
}

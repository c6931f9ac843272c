package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tfcluster/tfcluster/internal/lockfile"
	"github.com/tfcluster/tfcluster/internal/proc"
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

// prepareFolder creates the folder for sockets with mode 0700, or checks that this user owns
// it.
func prepareFolder(dir string) error {
	if limit := 107 - len("/zygote-0123456789abcdef.sock"); len(dir) > limit {
		return fmt.Errorf("%s is longer than %d bytes, so a unix socket below it cannot be opened: "+
			"give Spark or YARN a shorter folder for its work (spark.local.dir, yarn.nodemanager.local-dirs)", dir, limit)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if uid, ok := proc.Owner(dir); !ok || !info.IsDir() || uid != strconv.Itoa(os.Getuid()) {
		return fmt.Errorf(
			"%s is a link or a file, or belongs to another user: remove it, and tfcluster makes a folder of its own there", dir)
	}
	return os.Chmod(dir, 0o700)
}

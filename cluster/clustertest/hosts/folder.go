package hosts

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// folderPrefix begins the names of the folders with the disks of hosts. t.TempDir's paths are too long for sockets
// below them.
const folderPrefix = "hosts-"

// sweepAge is the least age of a folder that newFolder removes: a younger one may just be going to be locked.
const sweepAge = time.Minute

// newFolder makes a folder and locks it. It removes the folders of tests that were killed, whose locks are free.
func newFolder() (dir string, lock *os.File, err error) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*")) // the pattern is well formed
	for _, path := range old {
		sweep(path)
	}
	if dir, err = os.MkdirTemp("", folderPrefix); err != nil {
		return "", nil, err
	}
	if lock, err = os.Open(dir); err == nil {
		err = lockfile.Try(lock, lockfile.Exclusive)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

// sweep removes a folder that no test holds.
func sweep(path string) {
	f, err := os.Open(path)
	if err != nil {
		return // another user's, or just removed
	}
	defer f.Close() // releases the lock
	info, err := f.Stat()
	if err == nil && time.Since(info.ModTime()) > sweepAge && lockfile.Try(f, lockfile.Exclusive) == nil {
		_ = os.RemoveAll(path) // it may be another user's
	}
}

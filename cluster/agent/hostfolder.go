package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// hostLock is the file in a host's folder on which each of its agents holds a shared lock.
const hostLock = "alive"

// keepHostFolder makes the folder that a cluster's agents on one host share, for Python
// that has imported TensorFlow once for all of them, and holds it. The last agent to
// call release removes it; a killed one's goes when somebody finds the lock free.
func keepHostFolder(dir string) (release func(), err error) {
	var f *os.File
	for range hostTries { // another may remove it at any moment of its making
		if f, err = holdHostFolder(dir); err == nil {
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
func holdHostFolder(dir string) (*os.File, error) {
	if err := prepareFolder(dir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, hostLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		f.Close()
		return nil, err
	}
	if !isStill(f) {
		f.Close()
		return nil, fmt.Errorf("%s was removed", dir)
	}
	return f, nil
}

// isStill is whether the open file is the one that its name means now.
func isStill(f *os.File) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(open, named)
}

func leaveHostFolder(dir string, f *os.File) {
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil { // nobody else is there
		os.RemoveAll(dir)
	}
	f.Close()
}

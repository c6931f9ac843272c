// Package lockfile locks files with flock(2). A lock belongs to an open file, including
// inherited descriptors: it ends when the last descriptor is closed, for example because the
// process ended.
package lockfile

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Mode is the mode of a lock.
type Mode int

// Modes of a lock. Either several open files hold a Shared lock, or one holds an Exclusive
// lock.
const (
	Shared    Mode = unix.LOCK_SH
	Exclusive Mode = unix.LOCK_EX
)

// ErrHeld reports that another open file holds a conflicting lock.
var ErrHeld = errors.New("another process holds the lock")

// pollEvery is the time between two attempts, because flock has no timeout.
const pollEvery = 10 * time.Millisecond

// Try locks an open file, which may be a folder, without waiting. It returns ErrHeld if another
// open file holds a conflicting lock. If f already holds a lock, Try changes its mode.
func Try(f *os.File, mode Mode) error {
	err := unix.Flock(int(f.Fd()), int(mode)|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

// Unlock unlocks an open file.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// Open opens a file, creates it with mode 0600 if necessary, and locks it. It waits until the
// lock is free or ctx ends. Closing the file unlocks it.
func Open(ctx context.Context, path string, mode Mode) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		err = wait(ctx, f, mode)
		if err == nil && IsCurrent(f) {
			return f, nil
		}
		_ = f.Close()                                 // nothing was written
		if err = cmp.Or(err, ctx.Err()); err != nil { // otherwise the path was replaced, perhaps again and again
			return nil, err
		}
	}
}

func wait(ctx context.Context, f *os.File, mode Mode) error {
	for {
		if err := Try(f, mode); !errors.Is(err, ErrHeld) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// IsCurrent reports whether the path of an open file still refers to that file. After locking a
// file that other processes may remove, check this: the lock of a removed file excludes no
// other process.
func IsCurrent(f *os.File) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(open, named)
}

// Package lockfile locks files with flock(2). A lock belongs to the open file and to what
// inherits it: it ends when the last descriptor is closed, however its process ends.
package lockfile

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Mode is how a file is locked.
type Mode int

// Modes of a lock. Any number of open files may hold a Shared one, and then none an
// Exclusive one.
const (
	Shared    Mode = unix.LOCK_SH
	Exclusive Mode = unix.LOCK_EX
)

// ErrHeld says that another open file holds a lock that excludes the one asked for.
var ErrHeld = errors.New("another process holds the lock")

// pollEvery is the time between two tries: flock has no deadline of its own.
const pollEvery = 10 * time.Millisecond

// Try locks an open file, which may be a folder, without waiting. It returns ErrHeld where
// somebody else holds it. A lock that the file holds already is changed to this mode.
func Try(f *os.File, mode Mode) error {
	err := unix.Flock(int(f.Fd()), int(mode)|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

// Unlock gives up the lock of an open file.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// Open opens a file, which it makes with mode 0600 if there is none, and locks it. It waits
// until the lock is free or ctx ends. Closing the file unlocks it.
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
		_ = f.Close() // nothing was written
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil { // the path is made anew again and again
			return nil, ctx.Err()
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

// IsCurrent returns whether the path of an open file still names that file. Whoever locks a
// file that others may remove checks it afterwards: the lock of a removed file keeps nobody
// out.
func IsCurrent(f *os.File) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(open, named)
}

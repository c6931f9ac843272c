package runfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// A file that changes all the time is sent after maxUnsent, as a copy that was taken when it had not
// changed for lull and no process had it open for writing.
const (
	maxUnsent   = 10 * time.Second
	lull        = 100 * time.Millisecond
	maxLullWait = 2 * time.Second // how long to wait for a lull
	maxCopied   = 2 << 30         // bytes of one folder: a folder with more is sent when its files no longer change
)

// fileCopy is a copy of a version of a file. It has no name.
type fileCopy struct {
	*os.File
	version stamp
}

func closeCopies(copies map[string]fileCopy) {
	for _, c := range copies {
		c.Close()
	}
}

// copies copies files that change all the time. The files of one folder may be parts of one checkpoint:
// they are copied at one moment, or none of them is. The next round tries again.
func (s *Sender) copies(ctx context.Context, names map[string]bool) (map[string]fileCopy, error) {
	folders := map[string][]string{}
	for name, copied := range names {
		if copied {
			folders[path.Dir(name)] = append(folders[path.Dir(name)], name)
		}
	}
	copies := map[string]fileCopy{}
	var failed error
	for folder, names := range folders {
		err := errChanged
		for end := time.Now().Add(maxLullWait); errors.Is(err, errChanged) && time.Now().Before(end) && ctx.Err() == nil; {
			var set map[string]fileCopy
			if set, err = s.copySet(ctx, names); err == nil {
				maps.Copy(copies, set)
			}
		}
		if err != nil && !errors.Is(err, errChanged) && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("copy files of %s that change all the time: %w", folder, err))
		}
	}
	return copies, failed
}

// copySet copies files as they are at one moment. It fails with errChanged if one of them changes
// meanwhile or is being written.
func (s *Sender) copySet(ctx context.Context, names []string) (set map[string]fileCopy, err error) {
	before := map[string]stamp{}
	var size int64
	for _, name := range names {
		if before[name], err = s.stat(name); err != nil {
			return nil, err
		}
		size += before[name].size
	}
	time.Sleep(lull)
	if size > maxCopied {
		return nil, errChanged
	}
	set = map[string]fileCopy{}
	defer func() {
		if err != nil {
			closeCopies(set)
		}
	}()
	for _, name := range names {
		aside, err := s.copyOf(ctx, name, before[name])
		if err != nil {
			return nil, err
		}
		set[name] = fileCopy{aside, before[name]}
	}
	for _, name := range names {
		if after, err := s.stat(name); err != nil || after != before[name] {
			return nil, errChanged
		}
	}
	return set, nil
}

// copyOf copies a version of a file that no process has open for writing.
func (s *Sender) copyOf(ctx context.Context, name string, want stamp) (*os.File, error) {
	f, version, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if version != want {
		return nil, errChanged
	}
	written, known := s.written(f)
	_, atDriver := s.sent[name]
	if written || !known && atDriver { // an incomplete file must not replace a complete one at the driver
		return nil, errChanged
	}
	return s.duplicate(ctx, f, version.size)
}

// written reports whether a process has a file open for writing. It is not known on file systems without
// leases and for files of other users.
func written(f *os.File) (written, known bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, false
	}
	var leased error
	err = raw.Control(func(fd uintptr) {
		if _, leased = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); leased == nil {
			// At once, because a process that opens the file to write waits for it.
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	})
	written = errors.Is(leased, unix.EAGAIN)
	return written, err == nil && (leased == nil || written)
}

// duplicate copies an open file into a file without a name on the same disk.
func (s *Sender) duplicate(ctx context.Context, f *os.File, size int64) (*os.File, error) {
	aside, err := os.OpenFile(s.root.Name(), unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err != nil {
		if aside, err = os.CreateTemp("", "tfcluster-"); err != nil { // the file system has no O_TMPFILE
			return nil, err
		}
		_ = os.Remove(aside.Name()) // it is only read through aside
	}
	for left := size; left > 0 && err == nil; left -= min(left, chunk) {
		_, err = io.CopyN(aside, f, min(left, chunk))
		err = errors.Join(err, ctx.Err())
	}
	if errors.Is(err, io.EOF) {
		err = errChanged
	}
	if err == nil {
		_, err = aside.Seek(0, io.SeekStart)
	}
	if err != nil {
		aside.Close()
		return nil, err
	}
	return aside, nil
}

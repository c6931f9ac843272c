package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/internal/excerpt"
)

// errGPULocked: another executor of this host holds the GPU.
var errGPULocked = errors.New("another executor of this host holds the GPU")

// Locks is a folder with a lock file per GPU, shared by all users of a host. Locks are of open
// file descriptions, so the kernel releases them when their holder dies, and a test does not
// take them. The file's text names the holder.
type Locks struct{ dir string }

// DefaultLocks returns the locks that all users of this host share.
func DefaultLocks() Locks {
	return Locks{cmp.Or(os.Getenv("TFCLUSTER_GPU_LOCKS"), "/tmp/tfcluster-gpu")}
}

// lock locks a GPU; closing the file releases it.
func (l Locks) lock(uuid, holder string) (*os.File, error) {
	f, err := l.open(uuid)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		f.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, errGPULocked
		}
		return nil, err
	}
	text := fmt.Appendf(nil, "%s (pid %d, uid %d)\n", holder, os.Getpid(), os.Getuid())
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(text, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write who holds a GPU: %w", err)
	}
	return f, nil
}

// holder returns the holder of a GPU; "" if it is free.
func (l Locks) holder(uuid string) string {
	// Any user may have created a fifo there.
	f, err := os.OpenFile(l.path(uuid), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	asked := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &asked) != nil || asked.Type == unix.F_UNLCK {
		return "" // not locked
	}
	text, _ := io.ReadAll(io.LimitReader(f, 1<<10))
	return cmp.Or(excerpt.OneLine(string(text)), "another executor")
}

func (l Locks) path(uuid string) string {
	return filepath.Join(l.dir, strings.Map(func(r rune) rune {
		if r == '/' || r == 0 {
			return '_'
		}
		return r
	}, uuid)+".lock")
}

// open opens a lock file. It opens another user's without O_CREAT, which the kernel may forbid
// in a sticky folder (fs.protected_regular).
func (l Locks) open(uuid string) (*os.File, error) {
	if err := l.prepare(); err != nil {
		return nil, err
	}
	path := l.path(uuid)
	for range 3 {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err == nil {
			if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
				f.Close()
				return nil, fmt.Errorf("the lock file of a GPU, %s, is not a regular file: remove it", path)
			}
			return f, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			return f, f.Chmod(0o666) // regardless of the umask
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the lock file of a GPU, %s, is removed each time it is created: find out what cleans %s, "+
		"and exclude that folder", path, l.dir)
}

// prepare creates the folder with /tmp's mode: every user may create files, and remove only
// their own.
func (l Locks) prepare() error {
	if err := os.Mkdir(l.dir, 0o777); err == nil {
		return os.Chmod(l.dir, 0o777|os.ModeSticky)
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(l.dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("the folder for the lock files of GPUs, %s, is not a folder: remove it", l.dir)
	}
	return nil
}

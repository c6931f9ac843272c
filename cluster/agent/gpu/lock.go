package gpu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/agent/excerpt"
)

// errGPULocked: another executor of this host holds the GPU.
var errGPULocked = errors.New("another executor holds it")

// Locks is the folder with a lock file per GPU, shared by all users of a
// host. A lock is the kernel's (of an open file description), so it ends with its
// holder however that ends, and whether there is one can be asked without taking
// it; the file's text only says who it is.
type Locks struct{ dir string }

// DefaultLocks returns the locks that all users of this host share.
func DefaultLocks() Locks {
	if dir := os.Getenv("TFCLUSTER_GPU_LOCKS"); dir != "" {
		return Locks{dir}
	}
	return Locks{"/tmp/tfcluster-gpu"}
}

// lock takes a GPU's lock; closing the file gives it up.
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
	text := fmt.Sprintf("%s (pid %d, uid %d)\n", holder, os.Getpid(), os.Getuid())
	if err := errors.Join(f.Truncate(0), writeAt(f, text)); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the lock's holder: %w", err)
	}
	return f, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// holder says who holds a GPU, or "".
func (l Locks) holder(uuid string) string {
	f, err := os.OpenFile(l.path(uuid), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // anybody may have put a fifo there
	if err != nil {
		return ""
	}
	defer f.Close()
	asked := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &asked) != nil || asked.Type == unix.F_UNLCK {
		return "" // nobody
	}
	text, _ := io.ReadAll(io.LimitReader(f, 1<<10))
	if who := excerpt.OneLine(string(text)); who != "" {
		return who
	}
	return "another executor"
}

func (l Locks) path(uuid string) string {
	return filepath.Join(l.dir, strings.Map(func(r rune) rune {
		if r == '/' || r == 0 {
			return '_'
		}
		return r
	}, uuid)+".lock")
}

// open opens a lock file. Another user's is opened without O_CREAT, which the
// kernel may forbid in a folder with the sticky bit (fs.protected_regular).
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
				return nil, fmt.Errorf("%s is no regular file", path)
			}
			return f, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			return f, f.Chmod(0o666) // whatever the umask is
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s appears and vanishes", path)
}

// prepare makes the folder as /tmp is: everyone may add, none remove another's.
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
		return fmt.Errorf("%s is no folder", l.dir)
	}
	return nil
}

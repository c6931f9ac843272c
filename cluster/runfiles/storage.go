package runfiles

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Storage stores the runs of a cluster. Paths are relative to --dir, use slashes, and were
// checked by the Receiver. Implementations are safe for concurrent use. Errors for missing
// files wrap fs.ErrNotExist.
type Storage interface {
	StorageReader
	StorageWriter
}

// StorageReader reads files.
type StorageReader interface {
	Open(path string) (io.ReadCloser, error)
	Stat(path string) (File, error)
	// Files returns the regular files below a folder; none if the folder does not exist.
	Files(folder string) ([]File, error)
}

// StorageWriter writes files.
type StorageWriter interface {
	// Write opens a file for writing at an offset that is not beyond its end. It creates the
	// file and its folders if necessary and never truncates.
	Write(path string, offset int64) (io.WriteCloser, error)
	// Rename atomically renames a file, replacing any existing one, and sets its modification
	// time.
	Rename(from, to string, modified time.Time) error
	Remove(path string) error
	// Room returns the free space in bytes.
	Room() (int64, error)
}

// File describes a file of a Storage.
type File struct {
	Path     string
	Size     int64 // bytes
	Modified time.Time
}

// Local is a Storage in a folder of this host. It does not follow links that lead out of the
// folder.
type Local struct {
	dir string

	mu   sync.Mutex
	root *os.Root // guarded by mu: nil before the first use
}

// NewLocal returns a Storage in dir, which is created on first use.
func NewLocal(dir string) *Local { return &Local{dir: dir} }

func (l *Local) open() (*os.Root, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.root != nil {
		return l.root, nil
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, err
	}
	l.root = root
	return root, nil
}

// Write implements Storage.
func (l *Local) Write(name string, offset int64) (io.WriteCloser, error) {
	root, err := l.open()
	if err != nil {
		return nil, err
	}
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Open implements Storage.
func (l *Local) Open(name string) (io.ReadCloser, error) {
	root, err := l.open()
	if err != nil {
		return nil, err
	}
	return root.Open(name)
}

// Stat implements Storage.
func (l *Local) Stat(name string) (File, error) {
	root, err := l.open()
	if err != nil {
		return File{}, err
	}
	info, err := root.Lstat(name)
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() {
		return File{}, &fs.PathError{
			Op: "stat", Path: name, Err: errors.New("it is a folder, a link or a device, not a regular file"),
		}
	}
	return File{name, info.Size(), info.ModTime()}, nil
}

// Rename implements Storage. It also removes folders that become empty, as Remove does.
func (l *Local) Rename(from, to string, modified time.Time) error {
	root, err := l.open()
	if err != nil {
		return err
	}
	if err := root.Chtimes(from, modified, modified); err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(to), 0o700); err != nil {
		return err
	}
	if err := root.Rename(from, to); err != nil {
		return err
	}
	removeEmpty(root, path.Dir(from))
	return nil
}

// Remove implements Storage. It also removes folders that become empty, except a run's folder and
// those directly below it.
func (l *Local) Remove(name string) error {
	root, err := l.open()
	if err != nil {
		return err
	}
	if err := root.Remove(name); err != nil {
		return err
	}
	removeEmpty(root, path.Dir(name))
	return nil
}

// removeEmpty removes a folder and those that it is in, as far as they are empty, except a run's folder and those
// directly below it.
func removeEmpty(root *os.Root, folder string) {
	for ; depth(folder) > 2 && root.Remove(folder) == nil; folder = path.Dir(folder) {
	}
}

// Files implements Storage.
func (l *Local) Files(folder string) ([]File, error) {
	root, err := l.open()
	if err != nil {
		return nil, err
	}
	var files []File
	err = fs.WalkDir(root.FS(), folder, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			files = append(files, File{name, info.Size(), info.ModTime()})
		}
		return err
	})
	return files, err
}

// Room implements Storage.
func (l *Local) Room() (int64, error) {
	root, err := l.open()
	if err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(root.Name(), &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}

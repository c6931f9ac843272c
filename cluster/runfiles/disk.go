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

// Disk is where a cluster's runs lie. Paths are relative to --dir, with slashes, and
// were checked by the Keeper. Its methods may be called from many goroutines. An
// error wraps fs.ErrNotExist where there is no such file.
type Disk interface {
	DiskReader
	DiskWriter
}

// DiskReader gives files out.
type DiskReader interface {
	Open(path string) (io.ReadCloser, error)
	Stat(path string) (File, error)
	// Files are the regular files below a folder; none where there is no folder.
	Files(folder string) ([]File, error)
}

// DiskWriter takes files in.
type DiskWriter interface {
	// Write opens a file at an offset not behind its end, makes it and its folders
	// where they are missing, and never cuts it.
	Write(path string, offset int64) (io.WriteCloser, error)
	// Rename gives a file another name, whatever bore it, in one step, and the time
	// of its last change.
	Rename(from, to string, modified time.Time) error
	Remove(path string) error
	// Room is how much may still be written, in bytes.
	Room() (int64, error)
}

// File is one file of a Disk.
type File struct {
	Path     string
	Size     int64 // bytes
	Modified time.Time
}

// Local is a Disk on a file system of this machine. Links that lead out of its folder
// are not followed.
type Local struct {
	dir string

	mu   sync.Mutex
	root *os.Root // guarded by mu: nil before the first use
}

// NewLocal is the folder dir, which is made when it is first used.
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

// Write implements Disk.
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

// Open implements Disk.
func (l *Local) Open(name string) (io.ReadCloser, error) {
	root, err := l.open()
	if err != nil {
		return nil, err
	}
	return root.Open(name)
}

// Stat implements Disk.
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
		return File{}, &fs.PathError{Op: "stat", Path: name, Err: errors.New("not a plain file")}
	}
	return File{name, info.Size(), info.ModTime()}, nil
}

// Rename implements Disk.
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
	return root.Rename(from, to)
}

// Remove implements Disk. Folders that become empty go too, but not a run's own.
func (l *Local) Remove(name string) error {
	root, err := l.open()
	if err != nil {
		return err
	}
	if err := root.Remove(name); err != nil {
		return err
	}
	for folder := path.Dir(name); depth(folder) > 2; folder = path.Dir(folder) {
		if root.Remove(folder) != nil {
			break // not empty
		}
	}
	return nil
}

// Files implements Disk.
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

// Room implements Disk.
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

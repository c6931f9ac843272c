package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// folderPrefix begins the names of child folders in the system's temporary folder.
const folderPrefix = "tfcluster-kernel-"

// folderYoung is the age below which a folder without a lock may still be in creation.
const folderYoung = time.Minute

// folder is the private folder of a child, mode 0700: its sockets and its connection file,
// which contains the session's key. It is locked until the kernel process ends, so that later
// kernels can detect abandoned folders.
type folder struct {
	path string
	lock *os.File
}

// newFolder creates and locks a folder, after it has removed the folders of killed kernels.
func newFolder() (*folder, error) {
	sweepFolders(os.TempDir(), time.Now())
	path, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the sockets of the notebook's Python: %w; free space there, "+
			"or start the Jupyter server again with TMPDIR set to another folder", err)
	}
	lock, err := lockFolder(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the folder for the sockets of the notebook's Python: %w; "+
			"start the Jupyter server again with TMPDIR set to a folder on a local disk", err), os.RemoveAll(path))
	}
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) remove() error {
	return errors.Join(os.RemoveAll(f.path), f.lock.Close())
}

// lockFolder locks a folder without waiting. It does not follow links.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweepFolders removes this user's folders whose kernel has ended. Errors are ignored: leftover
// folders do not prevent a start.
func sweepFolders(dir string, now time.Time) {
	left, err := filepath.Glob(filepath.Join(dir, folderPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range left {
		if fi, err := os.Lstat(path); err != nil || !ours(fi) || now.Sub(fi.ModTime()) < folderYoung {
			continue
		}
		if lock, err := lockFolder(path); err == nil {
			_ = (&folder{path: path, lock: lock}).remove()
		}
	}
}

func ours(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && fi.IsDir()
}

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// Remote reads the file system with the cluster's directory. Names are URIs.
type Remote interface {
	List(ctx context.Context, name string) ([]fs.FileInfo, error)
	Open(ctx context.Context, name string) (io.ReadCloser, error)
}

// logCopier copies the runs' log folders from a remote directory to this host as they grow, for
// TensorBoard. One goroutine uses it.
type logCopier struct {
	remote Remote
	dir    string // the cluster's, a URI
	folder string // on this host
}

// copyInterval is the pause between two rounds.
const copyInterval = 2 * time.Second

// run copies new data until ctx ends. It calls first with the result of the first round.
func (f *logCopier) run(ctx context.Context, first func(error)) {
	for {
		err := f.copyNew(ctx)
		if first != nil {
			first(err)
			first = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(copyInterval):
		}
	}
}

// copyNew copies new data of all runs' log folders.
func (f *logCopier) copyNew(ctx context.Context) error {
	runs, err := f.remote.List(ctx, f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, r := range runs {
		if _, ok := rundir.Number(r.Name()); ok && r.IsDir() {
			if err := f.copyFolder(ctx, path.Join(r.Name(), "logs")); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *logCopier) copyFolder(ctx context.Context, name string) error {
	infos, err := f.remote.List(ctx, f.uri(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, i := range infos {
		if strings.HasPrefix(i.Name(), ".") {
			continue // it is being written
		}
		child := path.Join(name, i.Name())
		if i.IsDir() {
			err = f.copyFolder(ctx, child)
		} else {
			err = f.copyFile(ctx, child, i)
		}
		if err != nil {
			return err
		}
	}
	return f.removeOwnEvents(name, infos)
}

// removeOwnEvents removes the copies of a driver's event files that the driver has removed from a
// folder. infos are the folder's files.
func (f *logCopier) removeOwnEvents(folder string, infos []fs.FileInfo) error {
	here := filepath.Join(f.folder, filepath.FromSlash(folder))
	entries, err := os.ReadDir(here)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the copies of event files in %s: %w", here, err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), rundir.OwnEvents) ||
			slices.ContainsFunc(infos, func(i fs.FileInfo) bool { return i.Name() == e.Name() }) {
			continue
		}
		if err := os.Remove(filepath.Join(here, e.Name())); err != nil {
			return fmt.Errorf("remove the copy of an event file that the run has removed: %w", err)
		}
	}
	return nil
}

func (f *logCopier) uri(name string) string { return strings.TrimRight(f.dir, "/") + "/" + name }

// copyFile copies the new part of an append-only file, all of another one that changed.
func (f *logCopier) copyFile(ctx context.Context, name string, is fs.FileInfo) error {
	here := filepath.Join(f.folder, filepath.FromSlash(name))
	have := int64(0)
	if info, err := os.Stat(here); err == nil {
		if have = info.Size(); have == is.Size() && (runfiles.IsAppendOnly(name) || !info.ModTime().Before(is.ModTime())) {
			return nil
		}
	}
	r, err := f.remote.Open(ctx, f.uri(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed meanwhile
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if err := os.MkdirAll(filepath.Dir(here), 0o700); err != nil {
		return fmt.Errorf("copy %s: %w", f.uri(name), err)
	}
	if seeker, ok := r.(io.Seeker); ok && runfiles.IsAppendOnly(name) && have < is.Size() {
		if _, err := seeker.Seek(have, io.SeekStart); err == nil {
			return f.write(here, r, os.O_CREATE|os.O_WRONLY|os.O_APPEND)
		}
	}
	aside := filepath.Join(filepath.Dir(here), ".part-"+filepath.Base(here))
	if err := f.write(aside, r, os.O_CREATE|os.O_WRONLY|os.O_TRUNC); err != nil {
		return err
	}
	return os.Rename(aside, here)
}

// write writes r to a file. After an error the next round continues an append-only file.
func (f *logCopier) write(name string, r io.Reader, flag int) error {
	w, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", name, err)
	}
	_, err = io.Copy(w, r)
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("copy to %s: %w", name, err)
	}
	return nil
}

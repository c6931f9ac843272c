package proxy

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// disk is a Remote of files on this host.
type disk struct{}

func (disk) Open(_ context.Context, name string) (io.ReadCloser, error) { return os.Open(name) }

func (disk) List(_ context.Context, name string) ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(name)
	var infos []fs.FileInfo
	for _, e := range entries {
		info, ierr := e.Info()
		infos, err = append(infos, info), errors.Join(err, ierr)
	}
	return infos, err
}

// TestCopyOfRemovedEvents: when the driver has removed the event file that it wrote for a program, its
// copy is removed; other files stay.
func TestCopyOfRemovedEvents(t *testing.T) {
	t.Parallel()
	f := &logCopier{remote: disk{}, dir: t.TempDir(), folder: t.TempDir()}
	const own, programs = "run-001/logs/events.out.tfevents.1" + rundir.OwnEvents, "run-001/logs/events.out.tfevents.2"
	for _, name := range []string{own, programs} {
		at := filepath.Join(f.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.copyNew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(f.folder, own)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(f.dir, own)), os.Remove(filepath.Join(f.dir, programs)),
		f.copyNew(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, gone := os.Stat(filepath.Join(f.folder, own))
	_, kept := os.Stat(filepath.Join(f.folder, programs))
	if !errors.Is(gone, fs.ErrNotExist) || kept != nil {
		t.Errorf("after the removal: the driver's file %v, the program's %v", gone, kept)
	}
}

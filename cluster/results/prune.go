package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// Storage is where results are kept: a disk of this host or HDFS. Names are full.
type Storage interface {
	List(ctx context.Context, name string) ([]fs.FileInfo, error)
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Remove removes a file or a folder with all that is in it.
	Remove(ctx context.Context, name string) error
}

// LocalStorage is the Storage of this host.
type LocalStorage struct{}

// List implements Storage.
func (LocalStorage) List(ctx context.Context, name string) ([]fs.FileInfo, error) {
	return LocalFolder(name).List(ctx, "")
}

// Open implements Storage.
func (LocalStorage) Open(_ context.Context, name string) (io.ReadCloser, error) { return os.Open(name) }

// Remove implements Storage.
func (LocalStorage) Remove(_ context.Context, name string) error { return os.RemoveAll(name) }

// RootName is the name of the folder that holds the folders of clusters without --dir.
const RootName = "tfcluster-runs"

// Root returns the folder whose clusters are pruned together with the one in dir: the folder
// named RootName, or dir itself where a person chose another place.
func Root(dir string) string {
	if parent := strings.TrimSuffix(strings.TrimRight(dir, "/"), "/"+path.Base(dir)); path.Base(parent) == RootName {
		return parent
	}
	return dir
}

// Pruned is what Prune removed and kept.
type Pruned struct {
	Runs    int // removed
	Folders int // of clusters, that are empty then
	Kept    int // old runs whose programs left files
	Open    int // old runs whose records have no end: they may be active on another host
}

// ErrInUse reports that a live cluster uses the directory whose runs are to be removed.
var ErrInUse = errors.New("a live cluster uses that folder: shut it down first")

// Prune removes the records and lines of the runs below root that have not changed since before. It removes
// nothing of a run whose program left a file, such as a checkpoint, a model or an event file, and nothing of a
// run whose record has no end. Folders of clusters that are empty then are removed too. It skips the
// directories for which live returns true; if root is one of them, it fails with ErrInUse. It goes on after
// an error of one folder or run, and returns the first one, with the number of all.
func Prune(ctx context.Context, s Storage, root string, before time.Time, live func(dir string) bool) (Pruned, error) {
	var p Pruned
	infos, err := s.List(ctx, root)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("look for old runs: %w", err)
	}
	var runs, clusters []fs.FileInfo
	for _, i := range infos {
		switch _, run := rundir.Number(i.Name()); {
		case run:
			runs = append(runs, i)
		case path.Base(root) == RootName && i.IsDir() && !strings.HasPrefix(i.Name(), ".") &&
			!live(rundir.Join(root, i.Name())):
			clusters = append(clusters, i)
		}
	}
	var failed []error
	if live(root) {
		failed = append(failed, fmt.Errorf("remove old runs of %s: %w", root, ErrInUse))
	} else {
		_, failed = p.cluster(ctx, s, root, runs, before) // a cluster's own folder, also if it is named RootName
	}
	for _, i := range clusters {
		failed = append(failed, p.folder(ctx, s, rundir.Join(root, i.Name()), i, before)...)
		if ctx.Err() != nil {
			break
		}
	}
	switch len(failed) {
	case 0:
		return p, nil
	case 1:
		return p, failed[0]
	}
	return p, fmt.Errorf("not everything could be pruned (%d errors), the first: %w", len(failed), failed[0])
}

// folder prunes one cluster's folder, and removes it if it is empty then.
func (p *Pruned) folder(ctx context.Context, s Storage, dir string, info fs.FileInfo, before time.Time) []error {
	infos, err := s.List(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed by another cluster
	}
	if err != nil {
		return []error{fmt.Errorf("look for old runs: %w", err)}
	}
	empty, failed := p.cluster(ctx, s, dir, infos, before)
	if len(failed) > 0 || !empty || !info.ModTime().Before(before) {
		return failed
	}
	if s.Remove(ctx, dir) == nil { // else the folder above is somebody else's, and the empty one stays
		p.Folders++
	}
	return nil
}

// cluster prunes the runs of a cluster's folder with these entries, and returns whether it is empty then.
func (p *Pruned) cluster(ctx context.Context, s Storage, dir string, infos []fs.FileInfo,
	before time.Time,
) (empty bool, failed []error) {
	empty = true
	for _, i := range infos {
		run := rundir.Join(dir, i.Name())
		if _, ok := rundir.Number(i.Name()); !ok || !i.IsDir() {
			empty = false
			continue
		}
		old, foreign, err := scan(ctx, s, run, i, before, true)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // removed by another cluster
		case err != nil:
			failed = append(failed, fmt.Errorf("look for old runs: %w", err))
		case old && !foreign && !ended(ctx, s, run):
			p.Open++
		case old && !foreign:
			if err = s.Remove(ctx, run); err == nil {
				p.Runs++
				continue
			}
			failed = append(failed, fmt.Errorf("remove the records and lines of an old run: %w", err))
		case old:
			p.Kept++
		}
		empty = false
	}
	return empty, failed
}

// ended reports whether the record of a run has its end. A run without a record has ended with its driver.
func ended(ctx context.Context, s Storage, run string) bool {
	f, err := s.Open(ctx, rundir.Join(run, RecordFile))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	return err == nil && !Interrupted(readRecord(0, text))
}

// scan reports whether everything in a folder is older than before, and whether the folder contains a file
// that is neither the run's record, its manifest nor one of its lines. top is set for the run's own folder.
func scan(ctx context.Context, s Storage, name string, info fs.FileInfo,
	before time.Time, top bool,
) (old, foreign bool, err error) {
	if !info.ModTime().Before(before) {
		return false, false, nil
	}
	infos, err := s.List(ctx, name)
	if err != nil {
		return false, false, err
	}
	for _, i := range infos {
		ours := top && (i.Name() == RecordFile || i.Name() == ManifestFile || i.Name() == rundir.Lines) ||
			strings.HasSuffix(i.Name(), rundir.OwnEvents)
		switch {
		case !i.ModTime().Before(before):
			return false, false, nil
		case !i.IsDir():
			foreign = foreign || !ours
		default: // the folder of lines too: a run that writes nothing else is still active
			old, more, err := scan(ctx, s, rundir.Join(name, i.Name()), i, before, false)
			if err != nil || !old {
				return false, false, err
			}
			foreign = foreign || more && !ours
		}
	}
	return true, foreign, nil
}

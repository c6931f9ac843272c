// Package results reads and writes the record and the logs of runs in the cluster's directory,
// also when the cluster no longer exists.
package results

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

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Folder gives read access to a cluster's directory. Names are relative to it.
type Folder interface {
	List(ctx context.Context, name string) ([]fs.FileInfo, error)
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	Close() error
}

// LocalFolder is a Folder on this host.
type LocalFolder string

// List implements Folder.
func (h LocalFolder) List(_ context.Context, name string) ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(filepath.Join(string(h), name))
	if err != nil {
		return nil, err
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		if i, err := e.Info(); err == nil { // otherwise it was removed meanwhile
			infos = append(infos, i)
		}
	}
	return infos, nil
}

// Open implements Folder.
func (h LocalFolder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(h), name))
}

// Close implements Folder.
func (h LocalFolder) Close() error { return nil }

// Results are the runs in the directory of a cluster without a driver.
type Results struct {
	Dir    string // for messages
	Folder Folder
	Of     *state.ClusterRecord // restricts Runs to runs of this cluster; nil: runs of all clusters in Dir
}

// maxRuns limits the number of runs: the newest ones.
const maxRuns = 200

// Runs returns the status of the runs, oldest first. A run without a record was interrupted by
// the death of its driver. Only the last run includes the returned values, the others their
// reprs: the values of all runs may be gigabytes.
func (r *Results) Runs(ctx context.Context) ([]*clusterpb.RunStatus, error) {
	infos, err := r.Folder.List(ctx, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs in %s: %w", r.Dir, err)
	}
	var numbers []int32
	for _, i := range infos {
		if n, ok := rundir.Number(i.Name()); ok && i.IsDir() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	var runs []*clusterpb.RunStatus
	for _, n := range numbers[max(0, len(numbers)-maxRuns):] {
		st, err := r.run(ctx, n)
		if err != nil {
			return nil, err
		}
		if r.Of == nil || r.Of.Ran(st) {
			if n := len(runs); n > 0 {
				KeepReprs(runs[n-1])
			}
			runs = append(runs, st)
		}
	}
	if n := len(runs); n > 0 {
		r.nameKill(runs[n-1])
	}
	return runs, nil
}

// nameKill has the failure of the last run, if its driver had no time to write one, say that somebody ended the
// cluster's application at the engine.
func (r *Results) nameKill(st *clusterpb.RunStatus) {
	if r.Of == nil || len(r.Of.Applications) == 0 || !Interrupted(st) {
		return
	}
	last := r.Of.Applications[len(r.Of.Applications)-1]
	if strings.HasPrefix(last.State, "killed") {
		st.Failure = &clusterpb.Failure{
			Kind: "lost", ExitCode: 137, Summary: "the cluster ended: " + last.ID + " " +
				last.State, Remedy: st.GetFailure().GetRemedy(), Host: st.GetFailure().GetHost(),
		}
	}
}

func (r *Results) run(ctx context.Context, n int32) (*clusterpb.RunStatus, error) {
	b, err := logstore.ReadFile(ctx, r.Folder, path.Join(rundir.Name(n), RecordFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the record of run %d: %w", n, err)
	}
	st := readRecord(n, b)
	Place(st, r.Dir)
	return st, nil
}

// Lines returns the selected lines of a run, and the gaps among them.
func (r *Results) Lines(ctx context.Context, q logstore.Query) ([]*clusterpb.Line, []logstore.Gap, error) {
	return logstore.ReadFolder(ctx, r.Folder, q)
}

package logstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// Files gives access to a folder, possibly on another host. Names are relative to it.
type Files interface {
	List(ctx context.Context, name string) ([]fs.FileInfo, error)
	Open(ctx context.Context, name string) (io.ReadCloser, error)
}

// ReadFolder reads the selected lines of a run, and the gaps among them, from a folder of run
// folders without a driver. The lines of a task whose folder this user may not list are a gap.
func ReadFolder(ctx context.Context, folder Files, q Query) ([]*clusterpb.Line, []Gap, error) {
	s := NewStore("", DefaultQuota(), nil)
	s.read = func(name string) ([]byte, error) { return ReadFile(ctx, folder, filepath.ToSlash(name)) }
	root := path.Join(rundir.Name(q.Run), rundir.Lines)
	tasks, err := folder.List(ctx, root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("list the logs of run %d: %w", q.Run, err)
	}
	var unread []Gap
	for _, t := range tasks {
		task, ok := taskOfFolder(t.Name())
		if !ok || !t.IsDir() || !q.matchTask(task) {
			continue
		}
		files, err := folder.List(ctx, path.Join(root, t.Name()))
		if errors.Is(err, fs.ErrPermission) {
			unread = append(unread, Gap{Task: task, Why: err.Error()})
			continue
		} else if err != nil {
			return nil, nil, fmt.Errorf("list the logs of run %d: %w", q.Run, err)
		}
		var segments []segment
		for _, f := range files {
			g := segment{path: filepath.Join(rundir.Name(q.Run), rundir.Lines, t.Name(), f.Name()), bytes: f.Size()}
			if _, err := fmt.Sscanf(f.Name(), "%d.log", &g.first); err == nil {
				segments = append(segments, g)
			}
		}
		slices.SortFunc(segments, func(a, b segment) int { return strings.Compare(a.path, b.path) })
		if err := s.adopt(q.Run, task, segments); err != nil {
			return nil, nil, fmt.Errorf("read the logs of run %d: %w", q.Run, err)
		}
	}
	lines, gaps, err := s.Read(q)
	return lines, append(unread, gaps...), err
}

// ReadFile returns the content of a file of a folder.
func ReadFile(ctx context.Context, folder Files, name string) ([]byte, error) {
	f, err := folder.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

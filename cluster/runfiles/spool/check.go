package spool

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tfcluster/tfcluster/cluster/rundir"
)

// checkLimit is how long a person waits to hear that a directory cannot be used.
const checkLimit = 4500 * time.Millisecond

// Checked is what Check needs of the file system elsewhere. Names are URIs.
type Checked interface {
	Stat(ctx context.Context, name string) (fs.FileInfo, error)
	MakeDir(ctx context.Context, name string) error
	Write(ctx context.Context, name string, r io.ReadSeeker) error
	Remove(ctx context.Context, name string) error
}

// Check says within five seconds whether files can be kept in a directory: it makes it
// and writes a file there, which shows what its permissions and quotas allow.
func Check(ctx context.Context, remote Checked, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	err := check(ctx, remote, dir)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("--dir %s: no answer within %s: is HDFS up, and is that its NameNode?", dir, checkLimit)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("--dir %s: %w: give another --dir, have its owner let you in, or set HADOOP_USER_NAME", dir, err)
	}
	return fmt.Errorf("--dir %s: %w", dir, err)
}

func check(ctx context.Context, remote Checked, dir string) error {
	info, err := remote.Stat(ctx, dir)
	switch {
	case err == nil && !info.IsDir():
		return errors.New("it is a file: give a folder")
	case errors.Is(err, fs.ErrNotExist):
		err = remote.MakeDir(ctx, dir)
	}
	if err != nil {
		return err
	}
	probe := dir + "/.tfcluster-" + rand.Text()[:8]
	if err := remote.Write(ctx, probe, bytes.NewReader([]byte("may be removed\n"))); err != nil {
		return err
	}
	return remote.Remove(ctx, probe)
}

// Look takes note of what earlier clusters left in the directory, and returns the
// number of the last run there. It brings the records of their runs.
func (s *Spool) Look(ctx context.Context) (last int32, err error) {
	runs, err := s.cfg.Remote.List(ctx, s.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("look for earlier runs: %w", err)
	}
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, r := range runs {
		n, ok := rundir.Number(r.Name())
		if !ok || !r.IsDir() {
			continue
		}
		last = max(last, n)
		g.Go(func() error { return s.lookBelow(ctx, r.Name()) })
	}
	if err := g.Wait(); err != nil {
		return 0, fmt.Errorf("look for earlier runs: %w", err)
	}
	here, err := s.lastHere()
	if err != nil {
		return 0, err
	}
	return max(last, here), s.bring(ctx, func(name string) bool { return path.Base(name) == recordName && strings.Count(name, "/") == 1 })
}

func (s *Spool) lookBelow(ctx context.Context, folder string) error {
	infos, err := s.cfg.Remote.List(ctx, s.uri(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, info := range infos {
		name := path.Join(folder, info.Name())
		if info.IsDir() {
			if err := s.lookBelow(ctx, name); err != nil {
				return err
			}
			continue
		}
		s.mu.Lock()
		if _, known := s.known[name]; !known && !hidden(name) {
			s.known[name] = entry{info.Size(), info.ModTime().UnixNano(), true}
			s.changed = true
		}
		s.mu.Unlock()
	}
	return nil
}

// lastHere is the last run that has a folder here.
func (s *Spool) lastHere() (int32, error) {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return 0, fmt.Errorf("look for runs that are still here: %w", err)
	}
	var last int32
	for _, e := range entries {
		if n, ok := rundir.Number(e.Name()); ok {
			last = max(last, n)
		}
	}
	return last, nil
}

package spool

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

var _ runfiles.Storage = (*Spool)(nil)

// Write implements runfiles.Storage.
func (s *Spool) Write(name string, offset int64) (io.WriteCloser, error) {
	if _, away := s.remoteOnly(name); away && offset > 0 {
		if err := s.Fetch(s.lifetime, name); err != nil {
			return nil, err
		}
	}
	return s.local.Write(name, offset)
}

// Open implements runfiles.Storage.
func (s *Spool) Open(name string) (io.ReadCloser, error) {
	f, err := s.local.Open(name)
	if _, away := s.remoteOnly(name); away && errors.Is(err, fs.ErrNotExist) {
		return s.cfg.Remote.Open(s.lifetime, s.uri(name))
	}
	return f, err
}

// Stat implements runfiles.Storage.
func (s *Spool) Stat(name string) (runfiles.File, error) {
	f, err := s.local.Stat(name)
	if e, away := s.remoteOnly(name); away && errors.Is(err, fs.ErrNotExist) {
		return runfiles.File{Path: name, Size: e.Size, Modified: time.Unix(0, e.Modified)}, nil
	}
	return f, err
}

// remoteOnly returns the entry of a file and reports whether it exists only remotely.
func (s *Spool) remoteOnly(name string) (entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.known[name]
	return e, ok && e.RemoteOnly && !s.gone[name]
}

// Rename implements runfiles.Storage. It first fetches a file that exists only remotely.
func (s *Spool) Rename(from, to string, modified time.Time) error {
	if _, away := s.remoteOnly(from); away {
		if err := s.fetchOne(s.lifetime, from); err != nil {
			return err
		}
	}
	s.tree.RLock()
	defer s.tree.RUnlock()
	if err := s.local.Rename(from, to, modified); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone[to] {
		delete(s.gone, to)
		s.changed = true
	}
	if !hidden(from) { // it may be on its way
		s.gone[from], s.changed = true, true
	}
	return nil
}

// Remove implements runfiles.Storage.
func (s *Spool) Remove(name string) error {
	s.tree.RLock()
	defer s.tree.RUnlock()
	err := s.local.Remove(name)
	if _, away := s.remoteOnly(name); away && errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil && !hidden(name) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gone[name], s.changed = true, true
	}
	return err
}

// Files implements runfiles.Storage.
func (s *Spool) Files(folder string) ([]runfiles.File, error) {
	files, err := s.local.Files(folder)
	if err != nil {
		return nil, err
	}
	here := map[string]bool{}
	for _, f := range files {
		here[f.Path] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, e := range s.known {
		if e.RemoteOnly && !here[name] && !s.gone[name] && strings.HasPrefix(name, folder+"/") {
			files = append(files, runfiles.File{Path: name, Size: e.Size, Modified: time.Unix(0, e.Modified)})
		}
	}
	return files, nil
}

// Room implements runfiles.Storage. It returns the local space, because files are stored locally
// first.
func (s *Spool) Room() (int64, error) { return s.local.Room() }

// Fetch copies a file, or all files below a folder, that exist only remotely.
func (s *Spool) Fetch(ctx context.Context, name string) error {
	return s.fetch(ctx, func(file string) bool { return file == name || strings.HasPrefix(file, name+"/") })
}

// FetchAll fetches one folder of every run.
func (s *Spool) FetchAll(ctx context.Context, folder string) error {
	return s.fetch(ctx, func(file string) bool {
		parts := strings.SplitN(file, "/", 3)
		return len(parts) == 3 && parts[1] == folder
	})
}

func (s *Spool) fetch(ctx context.Context, wanted func(name string) bool) error {
	s.mu.Lock()
	var names []string
	for name, e := range s.known {
		if e.RemoteOnly && !s.gone[name] && wanted(name) {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(names, runfiles.ByRank)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, name := range names {
		g.Go(func() error { return s.fetchOne(ctx, name) })
	}
	return g.Wait()
}

// fetchOne copies a file to a temporary name and renames it when it is complete.
func (s *Spool) fetchOne(ctx context.Context, name string) error {
	r, err := s.cfg.Remote.Open(ctx, s.uri(name))
	if errors.Is(err, fs.ErrNotExist) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.known, name) // removed by another program
		s.changed = true
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	temp := path.Join(fetchName, rand.Text())
	w, err := s.local.Write(temp, 0)
	if err != nil {
		return s.writeError(err, temp)
	}
	n, err := io.Copy(w, r)
	if err = cmp.Or(err, w.Close()); err != nil {
		_ = s.root.Remove(temp) // the first error is more specific
		return s.writeError(err, temp)
	}
	s.tree.RLock()
	defer s.tree.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.known[name]
	if !known || !e.RemoteOnly || s.gone[name] {
		return s.root.Remove(temp) // fetched by another call, or removed
	}
	e.Size, e.RemoteOnly, s.changed = n, false, true
	s.known[name] = e
	return s.local.Rename(temp, name, time.Unix(0, e.Modified))
}

// writeError names the local folder instead of a temporary file in it: the file's name says nothing, and differs each
// time that the same error comes.
func (s *Spool) writeError(err error, temp string) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok && (strings.HasSuffix(of.Path, temp) || of.Path == fetchName) {
		return fmt.Errorf("write to %s: %w", s.root.Name(), of.Err)
	}
	return err
}

// makeRoom evicts files that are also remote, oldest first, while the free space is below
// cfg.Low. Task logs and event files stay, because the driver reads them.
func (s *Spool) makeRoom() {
	if !s.lowOnSpace() {
		return
	}
	s.mu.Lock()
	var names []string
	for name, e := range s.known {
		if !e.RemoteOnly && !isAppendOnly(name) && path.Base(name) != recordName && !runfiles.NamesOthers(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return int(s.known[a].Modified/1e6 - s.known[b].Modified/1e6) })
	s.mu.Unlock()
	for _, name := range names {
		s.evict(name)
		if !s.lowOnSpace() {
			return
		}
	}
}

func (s *Spool) lowOnSpace() bool {
	room, err := s.local.Room()
	return err == nil && room < s.cfg.Low
}

// evict removes a local file, unless it differs from the remote one.
func (s *Spool) evict(name string) {
	s.tree.Lock()
	defer s.tree.Unlock()
	info, err := s.root.Lstat(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.known[name]
	if err != nil || e != entryOf(info) || s.root.Remove(name) != nil {
		return
	}
	e.RemoteOnly, s.changed = true, true
	s.known[name] = e
}

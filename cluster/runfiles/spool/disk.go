package spool

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

var _ runfiles.Disk = (*Spool)(nil)

// Write implements runfiles.Disk.
func (s *Spool) Write(name string, offset int64) (io.WriteCloser, error) {
	if _, away := s.away(name); away && offset > 0 {
		if err := s.Bring(s.living, name); err != nil {
			return nil, err
		}
	}
	return s.local.Write(name, offset)
}

// Open implements runfiles.Disk.
func (s *Spool) Open(name string) (io.ReadCloser, error) {
	f, err := s.local.Open(name)
	if _, away := s.away(name); away && errors.Is(err, fs.ErrNotExist) {
		return s.cfg.Remote.Open(s.living, s.uri(name))
	}
	return f, err
}

// Stat implements runfiles.Disk.
func (s *Spool) Stat(name string) (runfiles.File, error) {
	f, err := s.local.Stat(name)
	if e, away := s.away(name); away && errors.Is(err, fs.ErrNotExist) {
		return runfiles.File{Path: name, Size: e.Size, Modified: time.Unix(0, e.Modified)}, nil
	}
	return f, err
}

// away tells whether a file lies only elsewhere.
func (s *Spool) away(name string) (entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.known[name]
	return e, ok && e.Away && !s.gone[name]
}

// Rename implements runfiles.Disk.
func (s *Spool) Rename(from, to string, modified time.Time) error {
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
	return nil
}

// Remove implements runfiles.Disk.
func (s *Spool) Remove(name string) error {
	s.tree.RLock()
	defer s.tree.RUnlock()
	err := s.local.Remove(name)
	if _, away := s.away(name); away && errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil && !hidden(name) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gone[name], s.changed = true, true
	}
	return err
}

// Files implements runfiles.Disk.
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
		if e.Away && !here[name] && !s.gone[name] && strings.HasPrefix(name, folder+"/") {
			files = append(files, runfiles.File{Path: name, Size: e.Size, Modified: time.Unix(0, e.Modified)})
		}
	}
	return files, nil
}

// Room implements runfiles.Disk: what is kept here first needs room here.
func (s *Spool) Room() (int64, error) { return s.local.Room() }

// Bring copies a file, or all below a folder, that lies only elsewhere.
func (s *Spool) Bring(ctx context.Context, name string) error {
	return s.bring(ctx, func(file string) bool { return file == name || strings.HasPrefix(file, name+"/") })
}

// BringAll copies, of every run, what lies only elsewhere in one of its folders.
func (s *Spool) BringAll(ctx context.Context, folder string) error {
	return s.bring(ctx, func(file string) bool {
		parts := strings.SplitN(file, "/", 3)
		return len(parts) == 3 && parts[1] == folder
	})
}

func (s *Spool) bring(ctx context.Context, wanted func(name string) bool) error {
	s.mu.Lock()
	var names []string
	for name, e := range s.known {
		if e.Away && !s.gone[name] && wanted(name) {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(names, runfiles.ByRank)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, name := range names {
		g.Go(func() error { return s.bringOne(ctx, name) })
	}
	return g.Wait()
}

// bringOne copies a file aside and gives it its name when it is whole.
func (s *Spool) bringOne(ctx context.Context, name string) error {
	r, err := s.cfg.Remote.Open(ctx, s.uri(name))
	if errors.Is(err, fs.ErrNotExist) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.known, name) // removed by somebody else
		s.changed = true
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	aside := path.Join(bringName, rand.Text())
	w, err := s.local.Write(aside, 0)
	if err != nil {
		return err
	}
	n, err := io.Copy(w, r)
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = s.root.Remove(aside) // the error to tell is the first one
		return err
	}
	s.tree.RLock()
	defer s.tree.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.known[name]
	if !known || !e.Away || s.gone[name] {
		return s.root.Remove(aside) // brought by another call, or removed
	}
	e.Size, e.Away, s.changed = n, false, true
	s.known[name] = e
	return s.local.Rename(aside, name, time.Unix(0, e.Modified))
}

// makeRoom gives up files that lie elsewhere too, the oldest first, while there is less
// room here than there should be. Lines and events stay: they are read here.
func (s *Spool) makeRoom() {
	if !s.cramped() {
		return
	}
	s.mu.Lock()
	var names []string
	for name, e := range s.known {
		if !e.Away && !grows(name) && path.Base(name) != recordName && !runfiles.NamesOthers(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return int(s.known[a].Modified/1e6 - s.known[b].Modified/1e6) })
	s.mu.Unlock()
	for _, name := range names {
		s.giveUp(name)
		if !s.cramped() {
			return
		}
	}
}

func (s *Spool) cramped() bool {
	room, err := s.local.Room()
	return err == nil && room < s.cfg.Low
}

// giveUp removes a file here, unless it is another than elsewhere by now.
func (s *Spool) giveUp(name string) {
	s.tree.Lock()
	defer s.tree.Unlock()
	info, err := s.root.Lstat(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.known[name]
	if err != nil || e != entryOf(info) || s.root.Remove(name) != nil {
		return
	}
	e.Away, s.changed = true, true
	s.known[name] = e
}

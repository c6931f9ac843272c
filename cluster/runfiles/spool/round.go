package spool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

const (
	parallel = 4                // concurrent uploads
	slowest  = 15 * time.Second // longest pause between attempts while the remote file system is unavailable
)

// Run uploads changes until ctx ends.
func (s *Spool) Run(ctx context.Context) {
	pause := s.cfg.Interval
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if s.round(ctx) == nil {
			pause = s.cfg.Interval
		} else {
			pause = min(2*pause, slowest)
		}
	}
}

// Flush uploads all current changes. After an error it retries until no file has been uploaded
// for patience.
func (s *Spool) Flush(ctx context.Context, patience time.Duration) error {
	moved, last := s.arrived(), time.Now()
	for {
		err := s.round(ctx)
		if err == nil {
			return nil
		}
		if n := s.arrived(); n > moved {
			moved, last = n, time.Now()
		}
		if ctx.Err() != nil || time.Since(last) >= patience {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (s *Spool) arrived() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// upload is a file to upload.
type upload struct {
	entry
	name       string
	local      string // local name; while the file is staged, no other version takes this name
	appendOnly bool
}

// round uploads all changes, in the order in which they may become visible.
func (s *Spool) round(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	case <-s.lifetime.Done():
		return s.lifetime.Err()
	}
	err := s.uploadAll(ctx)
	if err == nil {
		err = s.removeRemote(ctx)
	}
	if ctx.Err() == nil {
		s.reportOutage(err)
	}
	if serr := s.save(); serr != nil {
		// A later driver uploads it again.
		s.cfg.Log.Warn("a later driver may upload files again, because what has been uploaded could not be saved",
			"err", serr)
	}
	if err == nil {
		s.makeRoom()
	}
	return err
}

// reportOutage notifies users when uploads begin to fail and when they succeed again.
func (s *Spool) reportOutage(err error) {
	s.mu.Lock()
	before := s.lastErr
	s.lastErr = err
	s.mu.Unlock()
	switch {
	case before == nil && err != nil:
		s.notify(fmt.Sprintf("%v; training continues: its files are stored on the driver's host in %s and uploaded later",
			err, s.folder))
	case before != nil && err == nil:
		s.notify(s.cfg.Dir + " is available again: all waiting files were uploaded")
	}
}

func (s *Spool) uploadAll(ctx context.Context) error {
	defer s.unstage()
	uploads, err := s.stage()
	if err != nil {
		return err
	}
	for len(uploads) > 0 {
		rank := runfiles.Rank(uploads[0].name)
		n := slices.IndexFunc(uploads, func(p upload) bool { return runfiles.Rank(p.name) != rank })
		if n < 0 {
			n = len(uploads)
		}
		var g errgroup.Group
		var failed atomic.Bool
		g.SetLimit(parallel)
		for _, p := range uploads[:n] {
			g.Go(func() error {
				if failed.Load() {
					return nil
				}
				err := s.send(ctx, p)
				failed.CompareAndSwap(false, err != nil)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		uploads = uploads[n:]
	}
	return nil
}

func (s *Spool) send(ctx context.Context, p upload) error {
	f, err := s.root.Open(p.local)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return fmt.Errorf("upload %s to %s: %w", p.name, s.cfg.Dir, err)
	}
	defer f.Close()
	if p.appendOnly {
		err = s.cfg.Remote.Grow(ctx, s.uri(p.name), f, p.Size)
	} else {
		err = s.cfg.Remote.Write(ctx, s.uri(p.name), io.NewSectionReader(f, 0, p.Size))
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[p.name] = p.entry
	s.changed = true
	s.sent++
	return nil
}

// due returns the local files that differ from the remote ones, in the order in which they may
// become visible. The caller prevents renames and removals.
func (s *Spool) due() ([]upload, error) {
	var uploads []upload
	err := fs.WalkDir(s.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case name == ".":
			return nil
		case hidden(name) && e.IsDir():
			return fs.SkipDir
		case hidden(name) || !e.Type().IsRegular() || path.Dir(name) == ".":
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		now := entryOf(info)
		s.mu.Lock()
		known := s.known[name] == now
		s.mu.Unlock()
		if !known {
			uploads = append(uploads, upload{now, name, name, isAppendOnly(name)})
		}
		return nil
	})
	slices.SortFunc(uploads, func(a, b upload) int {
		return cmp.Or(runfiles.ByRank(a.name, b.name), cmp.Compare(a.Modified, b.Modified))
	})
	if err != nil {
		return nil, fmt.Errorf("list the files to upload to %s: %w", s.cfg.Dir, err)
	}
	return uploads, nil
}

func entryOf(info fs.FileInfo) entry {
	return entry{Size: info.Size(), Modified: info.ModTime().UnixNano()}
}

// stage links the files that are due into a separate folder while no file is renamed or
// removed, so that the uploaded files are consistent with each other.
func (s *Spool) stage() ([]upload, error) {
	s.tree.Lock()
	defer s.tree.Unlock()
	uploads, err := s.due()
	if err != nil || len(uploads) == 0 {
		return nil, err
	}
	if err := s.root.Mkdir(stageName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("put the files aside that go to %s: %w", s.cfg.Dir, err)
	}
	for i := range uploads {
		p := &uploads[i]
		if p.appendOnly {
			continue
		}
		staged := path.Join(stageName, strconv.Itoa(i))
		err := s.root.Link(p.name, staged)
		var info fs.FileInfo
		if err == nil {
			info, err = s.root.Lstat(staged)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // send detects the missing file
		}
		if err != nil {
			return nil, fmt.Errorf("put the files aside that go to %s: %w", s.cfg.Dir, err)
		}
		p.local, p.entry = staged, entryOf(info)
	}
	return uploads, nil
}

// unstage removes the staged files. If that fails, a later call repeats it.
func (s *Spool) unstage() { _ = s.root.RemoveAll(stageName) }

// removeRemote removes the remote copies of removed files, files that refer to others first.
func (s *Spool) removeRemote(ctx context.Context) error {
	s.mu.Lock()
	names := slices.SortedFunc(maps.Keys(s.gone), func(a, b string) int { return runfiles.ByRank(b, a) })
	s.mu.Unlock()
	for _, name := range names {
		if err := s.cfg.Remote.Remove(ctx, s.uri(name)); err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.gone, name)
		delete(s.known, name) // a new file of that name is uploaded again
		s.changed = true
		s.mu.Unlock()
	}
	return nil
}

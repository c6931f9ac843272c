package spool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

const (
	parallel = 4                // files on their way at once
	slowest  = 15 * time.Second // between two tries while the file system elsewhere is away
)

// Run carries over what comes, until ctx ends.
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

// Deliver carries over everything that is here now. Where that fails it tries again,
// until no file has arrived for as long as patience.
func (s *Spool) Deliver(ctx context.Context, patience time.Duration) error {
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

// parcel is a file that is to be carried over.
type parcel struct {
	entry
	name  string
	lies  string // under this name, which no other version takes
	grows bool
}

// round carries over what has changed, in the order in which files may be seen.
func (s *Spool) round(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	case <-s.living.Done():
		return s.living.Err()
	}
	err := s.carry(ctx)
	if err == nil {
		err = s.removeThere(ctx)
	}
	if ctx.Err() == nil {
		s.tell(err)
	}
	if serr := s.save(); serr != nil {
		s.cfg.Log.Warn("directory", "err", serr) // it is carried again by a later driver
	}
	if err == nil {
		s.makeRoom()
	}
	return err
}

// tell says when the file system elsewhere takes no files, and when it does again.
func (s *Spool) tell(err error) {
	s.mu.Lock()
	before := s.trouble
	s.trouble = err
	s.mu.Unlock()
	switch {
	case before == nil && err != nil:
		s.say(fmt.Sprintf("%v; training goes on: what it leaves is kept on the driver's host in %s and carried over later", err, s.folder))
	case before != nil && err == nil:
		s.say(s.cfg.Dir + " takes files again: what had waited is there")
	}
}

func (s *Spool) carry(ctx context.Context) error {
	defer s.unstage()
	parcels, err := s.stage()
	if err != nil {
		return err
	}
	for len(parcels) > 0 {
		rank := runfiles.Rank(parcels[0].name)
		n := slices.IndexFunc(parcels, func(p parcel) bool { return runfiles.Rank(p.name) != rank })
		if n < 0 {
			n = len(parcels)
		}
		var g errgroup.Group
		var failed atomic.Bool
		g.SetLimit(parallel)
		for _, p := range parcels[:n] {
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
		parcels = parcels[n:]
	}
	return nil
}

func (s *Spool) send(ctx context.Context, p parcel) error {
	f, err := s.root.Open(p.lies)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return fmt.Errorf("carry %s to %s: %w", p.name, s.cfg.Dir, err)
	}
	defer f.Close()
	if p.grows {
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

// due are the files that lie here otherwise than elsewhere, in the order in which they
// may be seen. The caller keeps others from naming and removing files.
func (s *Spool) due() ([]parcel, error) {
	var parcels []parcel
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
			parcels = append(parcels, parcel{now, name, name, grows(name)})
		}
		return nil
	})
	slices.SortFunc(parcels, func(a, b parcel) int {
		return cmp.Or(runfiles.ByRank(a.name, b.name), cmp.Compare(a.Modified, b.Modified))
	})
	if err != nil {
		return nil, fmt.Errorf("look for what is to be carried to %s: %w", s.cfg.Dir, err)
	}
	return parcels, nil
}

func entryOf(info fs.FileInfo) entry {
	return entry{Size: info.Size(), Modified: info.ModTime().UnixNano()}
}

// stage links what is due aside, all at one moment, so that what is sent belongs
// together whatever is named and removed meanwhile.
func (s *Spool) stage() ([]parcel, error) {
	s.tree.Lock()
	defer s.tree.Unlock()
	parcels, err := s.due()
	if err != nil || len(parcels) == 0 {
		return nil, err
	}
	if err := s.root.Mkdir(stageName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("put aside what is to be carried to %s: %w", s.cfg.Dir, err)
	}
	for i := range parcels {
		p := &parcels[i]
		if p.grows {
			continue
		}
		aside := path.Join(stageName, strconv.Itoa(i))
		err := s.root.Link(p.name, aside)
		var info fs.FileInfo
		if err == nil {
			info, err = s.root.Lstat(aside)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // sending it finds that out too
		}
		if err != nil {
			return nil, fmt.Errorf("put aside what is to be carried to %s: %w", s.cfg.Dir, err)
		}
		p.lies, p.entry = aside, entryOf(info)
	}
	return parcels, nil
}

// unstage ends what was put aside. What cannot be removed is tried again.
func (s *Spool) unstage() { _ = s.root.RemoveAll(stageName) }

// removeThere removes elsewhere what was removed here, those that name others first.
func (s *Spool) removeThere(ctx context.Context) error {
	s.mu.Lock()
	var names []string
	for name := range s.gone {
		names = append(names, name)
	}
	s.mu.Unlock()
	slices.SortFunc(names, func(a, b string) int { return runfiles.ByRank(b, a) })
	for _, name := range names {
		if err := s.cfg.Remote.Remove(ctx, s.uri(name)); err != nil {
			return err
		}
		s.mu.Lock()
		if s.gone[name] {
			delete(s.gone, name)
		}
		delete(s.known, name) // what bears the name again is carried again
		s.changed = true
		s.mu.Unlock()
	}
	return nil
}

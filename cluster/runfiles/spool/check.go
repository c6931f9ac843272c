package spool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"path"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// Timeouts of Check, for whose end a user waits.
const (
	checkLimit  = 4500 * time.Millisecond // of each call of the first try
	slowLimit   = 30 * time.Second        // of the whole second try, at a server that accepts connections
	acceptLimit = time.Second             // of a connection
)

// Checked is the part of the remote file system that Check uses. Names are URIs.
type Checked interface {
	Stat(ctx context.Context, name string) (fs.FileInfo, error)
	MakeDir(ctx context.Context, name string) error
	Write(ctx context.Context, name string, r io.ReadSeeker) error
	Remove(ctx context.Context, name string) error
}

// Check reports whether files can be written to a directory: it creates the directory and writes a file there,
// which checks permissions and quotas. It reports within six seconds that no server answers; a server that accepts
// connections, but answers slowly, gets a second try of slowLimit.
func Check(ctx context.Context, remote Checked, dir string) error {
	limit := checkLimit
	probe := dir + "/.tfcluster-" + rand.Text()[:8] // one name: a second try removes what the first may have left
	err := check(ctx, remote, dir, probe, limit)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && accepts(ctx, dir) {
		limit = slowLimit
		slow, cancel := context.WithTimeout(ctx, slowLimit)
		defer cancel()
		err = check(slow, remote, dir, probe, limit)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("--dir %s: no answer within %s: check that HDFS is running and that this is its NameNode",
			dir, limit)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("--dir %s: %w; or choose another --dir", dir, err)
	}
	return fmt.Errorf("--dir %s: %w", dir, err)
}

// accepts reports whether a server accepts connections at the address of a URI.
func accepts(ctx context.Context, uri string) bool {
	u, err := url.Parse(uri)
	if err != nil || u.Hostname() == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, acceptLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "8020")))
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was written
	return true
}

func check(ctx context.Context, remote Checked, dir, probe string, limit time.Duration) error {
	within := func(call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return call(ctx)
	}
	var info fs.FileInfo
	err := within(func(ctx context.Context) (err error) { info, err = remote.Stat(ctx, dir); return err })
	switch {
	case err == nil && !info.IsDir():
		return errors.New("it is a file, not a folder: choose another --dir")
	case errors.Is(err, fs.ErrNotExist):
		err = within(func(ctx context.Context) error { return remote.MakeDir(ctx, dir) })
	}
	if err != nil {
		return err
	}
	content := bytes.NewReader([]byte("may be removed\n"))
	if err := within(func(ctx context.Context) error { return remote.Write(ctx, probe, content) }); err != nil {
		return err
	}
	return within(func(ctx context.Context) error { return remote.Remove(ctx, probe) })
}

// Scan lists the files of earlier clusters in the directory and returns the number of the last
// run there. It fetches the records of those runs.
func (s *Spool) Scan(ctx context.Context) (last int32, err error) {
	runs, err := s.cfg.Remote.List(ctx, s.cfg.Dir)
	if errors.Is(err, fs.ErrPermission) {
		return 0, fmt.Errorf("look for earlier runs: %w; or choose another --dir", err)
	}
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
		g.Go(func() error { return s.scanBelow(ctx, r.Name()) })
	}
	if err := g.Wait(); err != nil {
		return 0, fmt.Errorf("look for earlier runs: %w", err)
	}
	here, err := s.lastLocal()
	if err != nil {
		return 0, err
	}
	return max(last, here),
		s.fetch(ctx, func(name string) bool { return path.Base(name) == recordName && strings.Count(name, "/") == 1 })
}

func (s *Spool) scanBelow(ctx context.Context, folder string) error {
	infos, err := s.cfg.Remote.List(ctx, s.uri(folder))
	// Another user's run has its number, and no more.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, info := range infos {
		name := path.Join(folder, info.Name())
		if info.IsDir() {
			if err := s.scanBelow(ctx, name); err != nil {
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

// lastLocal returns the number of the last run with a local folder.
func (s *Spool) lastLocal() (int32, error) {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return 0, fmt.Errorf("list local runs: %w", err)
	}
	return rundir.Last(entries), nil
}

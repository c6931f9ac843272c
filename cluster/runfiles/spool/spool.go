package spool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/lockfile"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// Remote is the file system elsewhere as a Spool uses it; cluster/hdfs is one. Names are
// URIs.
type Remote interface {
	// Write makes a file of what r holds, with its folders: readers see the old file
	// or the new one.
	Write(ctx context.Context, name string, r io.ReadSeeker) error
	// Grow makes a file hold the first size bytes of r, whose beginning it may hold.
	Grow(ctx context.Context, name string, r io.ReaderAt, size int64) error
	// Remove removes a file or folder; one that is not there is as good.
	Remove(ctx context.Context, name string) error
	List(ctx context.Context, name string) ([]fs.FileInfo, error)
	Open(ctx context.Context, name string) (io.ReadCloser, error)
}

// Config is what a Spool is made of.
type Config struct {
	Remote Remote
	Dir    string // the cluster's directory, a URI
	Parent string // the spools' folders of this host lie below it
	Log    *slog.Logger
	// Interval is between two looks for what is to be carried over: 2 s if zero.
	Interval time.Duration
	// Low is how much room is kept free here, in bytes, by giving up files that lie
	// elsewhere too: 4 GiB if zero.
	Low int64
}

// Spool is a runfiles.Disk for one driver. Its methods may be called from many
// goroutines.
type Spool struct {
	cfg    Config
	folder string
	local  *runfiles.Local
	lock   *os.File
	root   *os.Root
	turn   chan struct{} // capacity 1; a token is in while a round is under way

	living context.Context // ends with Close
	end    context.CancelFunc
	notes  notes

	// tree is held for writing while what is there is looked at as a whole, and for
	// reading while a file gets or loses its name. It is taken before mu.
	tree sync.RWMutex

	mu sync.Mutex
	// guarded by mu
	contents
	sent    int   // files carried over so far
	trouble error // of the last round; nil when it went well
}

// contents are what the journal holds.
type contents struct {
	known   map[string]entry // what lies elsewhere, by path
	gone    map[string]bool  // removed here, not yet elsewhere
	changed bool             // since the journal was written
}

// entry is a file as it lies elsewhere.
type entry struct {
	Size     int64 `json:"size"`
	Modified int64 `json:"modified"` // nanoseconds since 1970
	Away     bool  `json:"away,omitempty"`
}

// lockWait is how long a cluster waits for the end of another one with its directory.
const lockWait = 5 * time.Second

// Open locks the directory's folder and takes up what is in it. Ask Check first whether
// the directory can be used; Open itself does not go there.
func Open(ctx context.Context, c Config) (*Spool, error) {
	if c.Interval == 0 {
		c.Interval = 2 * time.Second
	}
	if c.Low == 0 {
		c.Low = 4 << 30
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	sum := sha256.Sum256([]byte(c.Dir))
	s := &Spool{
		cfg: c, folder: filepath.Join(c.Parent, ".spool-"+hex.EncodeToString(sum[:8])), turn: make(chan struct{}, 1),
		contents: contents{known: map[string]entry{}, gone: map[string]bool{}},
	}
	if err := s.claim(ctx); err != nil {
		return nil, err
	}
	s.living, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.local = runfiles.NewLocal(s.folder)
	var err error
	if s.root, err = os.OpenRoot(s.folder); err == nil {
		err = s.recall()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the folder for what goes to %s: %w", c.Dir, err), s.lock.Close())
	}
	return s, nil
}

// claim makes the folder and takes its lock, which ends with the process.
func (s *Spool) claim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		err := os.MkdirAll(s.folder, 0o700)
		if err == nil {
			s.lock, err = os.OpenFile(filepath.Join(s.folder, lockName), os.O_CREATE|os.O_RDWR, 0o600)
		}
		if err == nil {
			err = lockfile.Try(s.lock, lockfile.Exclusive)
			if err == nil && lockfile.IsCurrent(s.lock) {
				return nil
			}
			_ = s.lock.Close() // nothing was written
		}
		if err != nil && !errors.Is(err, lockfile.ErrHeld) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make the folder for what goes to %s: %w", s.cfg.Dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another cluster of this host keeps its runs in %s: choose another --dir, or shut that one down", s.cfg.Dir)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Folder is where the runs lie on this host.
func (s *Spool) Folder() string { return s.folder }

// Tell gives notes for people, one line each, to someone from now on.
func (s *Spool) Tell(note func(text string)) {
	for _, text := range s.notes.listen(note) {
		note(text)
	}
}

func (s *Spool) say(text string) {
	s.cfg.Log.Info("directory", "note", text)
	if note := s.notes.listener(text); note != nil {
		note(text)
	}
}

// notes are what the spool has to tell of the directory.
type notes struct {
	mu      sync.Mutex
	told    func(text string) // guarded by mu
	waiting []string          // guarded by mu: from before there was someone to tell
}

// listen makes told the one who is told from now on, and returns what has waited for it.
func (n *notes) listen(told func(text string)) (waiting []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	waiting, n.told, n.waiting = n.waiting, told, nil
	return waiting
}

// listener returns who is to be told a note; nil: nobody yet, and the note waits.
func (n *notes) listener(note string) func(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told == nil {
		n.waiting = append(n.waiting, note)
	}
	return n.told
}

// Close ends the use of the folder, and removes it where everything in it lies
// elsewhere too. It returns in words what does not.
func (s *Spool) Close() error {
	s.turn <- struct{}{} // no round is under way any more; none begins
	s.end()
	defer s.lock.Close()
	defer s.root.Close()
	left, err := s.due()
	s.unstage()
	if err != nil || len(left) > 0 || s.owesRemovals() {
		return errors.Join(err, s.save(), fmt.Errorf("%d files of %s could not be carried there: they lie in %s, and the next cluster of this host with that --dir carries them", len(left), s.cfg.Dir, s.folder))
	}
	if err := os.RemoveAll(s.folder); err != nil {
		return fmt.Errorf("remove the folder for what went to %s: %w", s.cfg.Dir, err)
	}
	return nil
}

func (s *Spool) owesRemovals() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.gone) > 0
}

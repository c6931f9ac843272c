package spool

import (
	"cmp"
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

	"github.com/tfcluster/tfcluster/cluster/runfiles"
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// Remote is the remote file system of a Spool; cluster/hdfs implements it. Names are URIs.
type Remote interface {
	// Write atomically writes all of r to a file and creates its folders if necessary.
	Write(ctx context.Context, name string, r io.ReadSeeker) error
	// Grow makes a file hold the first size bytes of r; it may already hold a beginning of
	// them.
	Grow(ctx context.Context, name string, r io.ReaderAt, size int64) error
	// Remove removes a file or folder; it succeeds if the name does not exist.
	Remove(ctx context.Context, name string) error
	List(ctx context.Context, name string) ([]fs.FileInfo, error)
	Open(ctx context.Context, name string) (io.ReadCloser, error)
}

// Config is the configuration of a Spool.
type Config struct {
	Remote Remote
	Dir    string // the cluster's directory, a URI
	Parent string // folder of this host for local folders of spools
	Log    *slog.Logger

	Temporary bool // Parent is removed after Close, as a container is
	// Interval is the time between two uploads; 0: 2 s.
	Interval time.Duration
	// Low is the free space to maintain in bytes, by evicting files that are also remote; 0: 4
	// GiB.
	Low int64
}

// Spool is a runfiles.Storage for one driver. Its methods are safe for concurrent use.
type Spool struct {
	cfg    Config
	folder string
	local  *runfiles.Local
	lock   *os.File
	root   *os.Root
	turn   chan struct{} // capacity 1; holds a token during a round

	lifetime context.Context // canceled by Close
	end      context.CancelFunc
	notices  notices

	// tree is locked for writing while the whole folder is scanned, and for reading while a
	// file is renamed or removed. It is locked before mu.
	tree sync.RWMutex

	mu sync.Mutex
	// guarded by mu
	contents
	sent    int   // number of files uploaded
	lastErr error // error of the last round; nil if it succeeded
}

// contents is the state stored in the journal.
type contents struct {
	known   map[string]entry // remote files, by path
	gone    map[string]bool  // removed locally but not yet remotely
	changed bool             // changed since the journal was written
}

// entry is a remote file.
type entry struct {
	Size       int64 `json:"size"`
	Modified   int64 `json:"modified"` // nanoseconds since 1970
	RemoteOnly bool  `json:"away,omitempty"`
}

// lockWait is how long to wait for another cluster with the same directory to end.
const lockWait = 5 * time.Second

// Open locks the directory's local folder and loads its journal. It does not access the remote
// file system; call Check first.
func Open(ctx context.Context, c Config) (*Spool, error) {
	c.Interval = cmp.Or(c.Interval, 2*time.Second)
	c.Low = cmp.Or(c.Low, 4<<30)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	sum := sha256.Sum256([]byte(c.Dir))
	s := &Spool{
		cfg: c, folder: filepath.Join(c.Parent, ".spool-"+hex.EncodeToString(sum[:8])), turn: make(chan struct{}, 1),
		contents: contents{known: map[string]entry{}, gone: map[string]bool{}},
	}
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	s.lifetime, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.local = runfiles.NewLocal(s.folder)
	var err error
	if s.root, err = os.OpenRoot(s.folder); err == nil {
		err = s.loadJournal()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the folder on this machine from which files go to %s: %w", c.Dir, err),
			s.lock.Close())
	}
	return s, nil
}

// acquire creates the local folder and locks it until the process ends.
func (s *Spool) acquire(ctx context.Context) error {
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
			return fmt.Errorf("make the folder on this machine from which files go to %s: %w", s.cfg.Dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another cluster on this host uses %s: choose another --dir, or shut that cluster down", s.cfg.Dir)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Folder returns the local folder.
func (s *Spool) Folder() string { return s.folder }

// OnNotice calls note with each message for users from now on, and with those that are waiting.
func (s *Spool) OnNotice(note func(text string)) {
	n := &s.notices
	n.mu.Lock()
	waiting := n.waiting
	n.listener, n.waiting = note, nil
	n.mu.Unlock()
	for _, text := range waiting {
		note(text)
	}
}

func (s *Spool) notify(text string) {
	s.cfg.Log.Info("directory", "note", text)
	n := &s.notices
	n.mu.Lock()
	note := n.listener
	if note == nil {
		n.waiting = append(n.waiting, text)
	}
	n.mu.Unlock()
	if note != nil {
		note(text)
	}
}

// notices are messages for users.
type notices struct {
	mu       sync.Mutex
	listener func(text string) // guarded by mu
	waiting  []string          // guarded by mu: messages from before there was a listener
}

// Close releases the local folder, and removes it if all its files are also remote. Otherwise
// the error says how many are not.
func (s *Spool) Close() error {
	s.turn <- struct{}{} // waits for the round in progress; prevents further ones
	s.end()
	defer s.lock.Close()
	defer s.root.Close()
	left, err := s.due()
	s.unstage()
	if err != nil || len(left) > 0 || s.hasRemovals() {
		remain := fmt.Sprintf("are stored in %s, and the next cluster on this host with --dir %s uploads them",
			s.folder, s.cfg.Dir)
		if s.cfg.Temporary {
			remain = "are lost with this container; the lines above say what prevented it"
		}
		return errors.Join(err, s.save(),
			fmt.Errorf("files of %s could not be uploaded (%d): they %s", s.cfg.Dir, len(left), remain))
	}
	if err := os.RemoveAll(s.folder); err != nil {
		return fmt.Errorf("remove the folder on this machine from which files went to %s: %w", s.cfg.Dir, err)
	}
	return nil
}

func (s *Spool) hasRemovals() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.gone) > 0
}

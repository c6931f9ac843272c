package ship

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// MaxFile limits the size of one file, folder or archive of --files, in bytes.
const MaxFile = 4 << 30

// TooLarge returns the error for a file above a limit, in bytes.
func TooLarge(size, most int64) error {
	return fmt.Errorf("it has %.2f GiB, more than the limit of %d GiB: put it on storage that executors can read, "+
		"and use it from there", float64(size)/(1<<30), most>>30)
}

// Store stores the contents that a cluster's executors fetch, each in a separate file. Its
// methods are safe for concurrent use.
type Store struct {
	dir   string // the cluster's folder
	cache string // the user's folder of packed environments

	turn sync.Mutex // held by Files, Environment and Import, one at a time

	mu sync.Mutex
	// guarded by mu
	known       map[string]known // contents of --files, by path
	environment *os.File         // the packed environment, kept open while the cluster exists
	packed      *clusterpb.Environment
}

// known is a content that was read before.
type known struct {
	fingerprint string
	shipped     *clusterpb.Shipped
}

// NewStore returns a Store of contents in dir, which is created when needed, and of packed
// environments in cache. It loads the environment that an earlier driver of the cluster packed.
func NewStore(dir, cache string) *Store {
	d := &Store{dir: dir, cache: cache, known: map[string]known{}}
	d.restore()
	return d
}

// Close closes the packed environment. The cluster's folder is removed with the cluster.
func (d *Store) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.environment == nil {
		return nil
	}
	return d.environment.Close()
}

var digestName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{64}$`)
})

// Open opens a content by its SHA-256 in hex; the error is fs.ErrNotExist if it is not stored.
func (d *Store) Open(digest string) (io.ReadSeekCloser, error) {
	if !digestName().MatchString(digest) {
		return nil, fs.ErrNotExist
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.environment != nil && digest == d.packed.GetPacked().GetContent().GetSha256() {
		// The cache may have been cleaned meanwhile; the open file is still readable.
		return held{io.NewSectionReader(d.environment, 0, d.packed.GetPacked().GetContent().GetSize())}, nil
	}
	return os.Open(filepath.Join(d.dir, digest))
}

// Discard removes a content that was damaged, so that the next call of Files reads it again.
func (d *Store) Discard(digest string) { _ = os.Remove(filepath.Join(d.dir, digest)) }

// held is a content whose file stays open while the cluster exists.
type held struct{ *io.SectionReader }

// Close does nothing.
func (held) Close() error { return nil }

// Files reads new and changed files and removes the contents of others. An error has one line
// and names the file.
func (d *Store) Files(ctx context.Context, given []*clusterpb.GivenFile) ([]*clusterpb.Shipped, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	if len(given) == 0 {
		return nil, nil
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder in which the driver keeps --files: %w", err)
	}
	var all []*clusterpb.Shipped
	for _, g := range given {
		s, err := d.file(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("--files %s: %w", g.GetPath(), oneLineError{err})
		}
		all = append(all, s)
	}
	return all, d.keepOnly(all)
}

// keepOnly removes all contents of files except the given ones.
func (d *Store) keepOnly(all []*clusterpb.Shipped) error {
	keep := map[string]bool{}
	for _, s := range all {
		keep[s.GetContent().GetSha256()] = true
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return fmt.Errorf("list the folder in which the driver keeps --files: %w", err)
	}
	for _, e := range entries {
		if digestName().MatchString(e.Name()) && !keep[e.Name()] {
			os.Remove(filepath.Join(d.dir, e.Name())) // if this fails, the next call repeats it
		}
	}
	return nil
}

func (d *Store) file(ctx context.Context, g *clusterpb.GivenFile) (*clusterpb.Shipped, error) {
	top, err := filepath.EvalSymlinks(g.GetPath())
	if err != nil {
		return nil, err
	}
	before, err := fingerprint(ctx, top)
	if err != nil {
		return nil, err
	}
	form := ""
	if g.GetUnpack() {
		form, _, _ = formOf(g.GetPath()) // of the given name: a link's target may be named otherwise
	}
	key := form + " " + top
	d.mu.Lock()
	k, ok := d.known[key]
	d.mu.Unlock()
	if !ok || k.fingerprint != before || !exists(filepath.Join(d.dir, k.shipped.GetContent().GetSha256())) {
		if k.shipped, err = d.read(ctx, top, form); err != nil {
			return nil, err
		}
		k.fingerprint = before
		if now, err := fingerprint(ctx, top); err != nil || now != before {
			return nil, errors.Join(
				errors.New("the file or folder changed while it was read: repeat the command when nothing writes to it"), err)
		}
		d.mu.Lock()
		d.known[key] = k
		d.mu.Unlock()
	}
	return &clusterpb.Shipped{
		Name: g.GetName(), Content: k.shipped.GetContent(), Form: k.shipped.GetForm(), Mode: k.shipped.GetMode(),
	}, nil
}

// read stores the content of a file or folder; form is that of an archive to unpack, or "".
func (d *Store) read(ctx context.Context, top, form string) (*clusterpb.Shipped, error) {
	info, err := os.Stat(top)
	if err != nil {
		return nil, err
	}
	s := &clusterpb.Shipped{}
	write := func(w io.Writer) error { return copyFile(ctx, w, top, MaxFile, func(int64) {}) }
	switch {
	case info.IsDir():
		s.Form = formTar
		write = func(w io.Writer) error { return pack(ctx, top, w, MaxFile, nil, func(int64) {}) }
	case !info.Mode().IsRegular():
		return nil, errors.New("the path is neither a file nor a folder: name one")
	case form != "":
		s.Form = form
	default:
		s.Mode = uint32(info.Mode().Perm())
	}
	s.Content, err = store(d.dir, write)
	return s, err
}

// store writes a content to a temporary file and renames it to its digest.
func store(dir string, write func(io.Writer) error) (*clusterpb.Blob, error) {
	f, err := os.CreateTemp(dir, ".aside-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	sum := sha256.New()
	err = write(io.MultiWriter(f, sum))
	size, sizeErr := f.Seek(0, io.SeekCurrent)
	if err := errors.Join(err, sizeErr, f.Close()); err != nil {
		return nil, err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	return &clusterpb.Blob{Sha256: digest, Size: size}, os.Rename(f.Name(), filepath.Join(dir, digest))
}

// copyFile copies the content of a file and calls progress with the number of bytes copied so
// far.
func copyFile(ctx context.Context, w io.Writer, file string, most int64, progress func(int64)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return err
	} else if info.Size() > most {
		return TooLarge(info.Size(), most)
	}
	_, err = io.CopyBuffer(w, watched(ctx, f, progress), make([]byte, 1<<20))
	return err
}

// watched returns a reader of r that fails when ctx has ended, and calls progress with the number of bytes read so far.
func watched(ctx context.Context, r io.Reader, progress func(int64)) io.Reader {
	n := int64(0)
	return io.TeeReader(r, writerFunc(func(b []byte) error {
		n += int64(len(b))
		progress(n)
		return ctx.Err()
	}))
}

// writerFunc is an io.Writer that calls a function.
type writerFunc func([]byte) error

func (f writerFunc) Write(b []byte) (int, error) { return len(b), f(b) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// oneLineError is an error whose text has at most one line.
type oneLineError struct{ error }

func (e oneLineError) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLineError) Unwrap() error { return e.error }

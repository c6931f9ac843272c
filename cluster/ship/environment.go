package ship

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/atomicfile"
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// Limits of environments, in bytes: of one unpacked environment, and of all packed ones at the
// driver or unpacked ones on an executor.
const (
	maxEnvironment = 16 << 30
	// CacheBytes limits the size of unused environments.
	CacheBytes = 24 << 30
)

// environmentFile is the file in a cluster's folder that describes its environment.
const environmentFile = "environment.json"

// Environment packs a folder, or stores a packed archive, once per content, and returns its
// description. progress is called with the number of bytes read so far. Later calls return the
// same environment as long as the cluster exists.
func (d *Store) Environment(ctx context.Context, path string, progress func(int64)) (*clusterpb.Environment, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	if e := d.Packed(); e != nil {
		return e, nil
	}
	e, err := d.pack(ctx, path, progress)
	if err != nil {
		return nil, fmt.Errorf("--venv %s: %w", path, oneLineError{err})
	}
	return e, nil
}

// Packed returns the packed environment, or nil.
func (d *Store) Packed() *clusterpb.Environment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.packed
}

func (d *Store) pack(ctx context.Context, path string, progress func(int64)) (*clusterpb.Environment, error) {
	top, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	print, err := fingerprint(ctx, top)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{d.cache, d.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	// The lock lets two clusters that start at the same time pack it only once.
	lock, err := lockfile.Open(ctx, filepath.Join(d.cache, "lock"), lockfile.Exclusive)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	sum := sha256.Sum256([]byte("1\x00" + top + "\x00" + print))
	note := filepath.Join(d.cache, hex.EncodeToString(sum[:16])+".json")
	e := d.cached(note)
	if e == nil {
		if e, err = d.packNew(ctx, top, path, progress); err != nil {
			return nil, err
		}
	}
	text, err := protojson.Marshal(e)
	if err != nil {
		return nil, err
	}
	// Written last: the description refers to a stored content.
	if err := errors.Join(atomicfile.Write(note, text),
		atomicfile.Write(filepath.Join(d.dir, environmentFile), text)); err != nil {
		return nil, err
	}
	if err := d.hold(e); err != nil {
		return nil, fmt.Errorf("open the environment that was packed: %w", err)
	}
	sweepPacked(d.cache, e.GetPacked().GetContent().GetSha256(), CacheBytes)
	return e, nil
}

func (d *Store) packNew(ctx context.Context, top, path string, progress func(int64)) (*clusterpb.Environment, error) {
	info, err := os.Stat(top)
	if err != nil {
		return nil, err
	}
	s := &clusterpb.Shipped{Name: filepath.Base(path)}
	var found *contents
	if info.IsDir() {
		if found, err = inspectFolder(top); err != nil {
			return nil, err
		}
		s.Form = formTarGz
		s.Content, err = store(d.cache, func(w io.Writer) error {
			z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
			if err != nil {
				return err
			}
			return errors.Join(pack(ctx, top, z, maxEnvironment, found.skips(), progress), z.Close())
		})
	} else {
		ok := false
		if s.Form, _, ok = formOf(top); !ok {
			return nil, errNoEnvironment
		}
		if found, err = inspectArchive(top, s.GetForm()); err != nil {
			return nil, err
		}
		s.Content, err = store(d.cache, func(w io.Writer) error { return copyFile(ctx, w, top, maxEnvironment, progress) })
	}
	if err != nil {
		return nil, err
	}
	python, err := found.python()
	if err != nil {
		return nil, err
	}
	return &clusterpb.Environment{Packed: s, Python: python, Own: found.own()}, nil
}

// cached returns the environment described in a file, or nil if its content is not in the
// cache.
func (d *Store) cached(file string) *clusterpb.Environment {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	e := &clusterpb.Environment{}
	if protojson.Unmarshal(text, e) != nil || !exists(filepath.Join(d.cache, e.GetPacked().GetContent().GetSha256())) {
		return nil
	}
	return e
}

// restore loads the environment that an earlier driver packed.
func (d *Store) restore() {
	if e := d.cached(filepath.Join(d.dir, environmentFile)); e != nil {
		_ = d.hold(e) // else it is packed again
	}
}

func (d *Store) hold(e *clusterpb.Environment) error {
	file := filepath.Join(d.cache, e.GetPacked().GetContent().GetSha256())
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	touch(file)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.environment, d.packed = f, e
	return nil
}

// contents describes the files of an environment.
type contents struct {
	config  string          // text of pyvenv.cfg
	venv    bool            // pyvenv.cfg exists
	library map[string]bool // "3.12": lib/python3.12 exists
	program bool            // bin/python3.12 is a regular file: the environment contains an interpreter
}

var (
	libraryPath = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^lib/python(3\.\d+)/`)
	})
	programPath = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^bin/python3\.\d+$`)
	})
	configured = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^\s*version(?:_info)?\s*=\s*(3\.\d+)`)
	})
)

// own reports whether the environment contains an interpreter; a venv uses that of its base.
func (c *contents) own() bool { return !c.venv && c.program }

func (c *contents) python() (string, error) {
	if found := configured().FindStringSubmatch(c.config); found != nil {
		return found[1], nil
	}
	if len(c.library) == 1 && (c.venv || c.program) {
		for version := range c.library {
			return version, nil
		}
	}
	return "", errors.New("this is not a Python environment: it has neither a pyvenv.cfg with a version nor bin/python " +
		"with one lib/python3.N; name the folder, or an archive, of one environment")
}

// CheckEnvironment returns an error if a folder or file cannot be an environment. It does not
// read archives.
func CheckEnvironment(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		_, err := inspectFolder(path)
		return err
	}
	if _, _, ok := formOf(path); !ok {
		return errNoEnvironment
	}
	return nil
}

var errNoEnvironment = errors.New("want the folder of an environment, or its .tar.gz, .tgz, .tar or .zip archive")

// inspectFolder returns the contents of an environment's folder.
func inspectFolder(dir string) (*contents, error) {
	c := &contents{library: map[string]bool{}}
	text, err := os.ReadFile(filepath.Join(dir, "pyvenv.cfg"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c.config, c.venv = string(text), err == nil
	for _, pattern := range []string{"lib/python3.*", "bin/python3.*"} {
		names, _ := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern))) // Glob cannot fail: the pattern is valid
		for _, file := range names {
			info, err := os.Lstat(file)
			if err != nil {
				return nil, err
			}
			name := pattern[:4] + filepath.Base(file)
			c.see(name, info.Mode())
			if info.IsDir() {
				c.see(name+"/", info.Mode())
			}
		}
	}
	_, err = c.python()
	return c, err
}

// inspectArchive returns the contents of a packed environment. The environment may be in a
// top-level folder of the archive.
func inspectArchive(file, form string) (*contents, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, below := &contents{library: map[string]bool{}}, &contents{library: map[string]bool{}}
	err = eachEntry(f, form, func(e entry) error {
		name, err := inside(e.name)
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(name, "/")
		for to, name := range map[*contents]string{c: name, below: rest} {
			to.see(name, e.mode)
			if name != "pyvenv.cfg" || !e.mode.IsRegular() {
				continue
			}
			text, err := io.ReadAll(io.LimitReader(e.content, 64<<10))
			if err != nil {
				return err
			}
			to.config, to.venv = string(text), true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := c.python(); err != nil {
		c = below
	}
	_, err = c.python()
	return c, err
}

func (c *contents) see(name string, mode fs.FileMode) {
	if found := libraryPath().FindStringSubmatch(name); found != nil {
		c.library[found[1]] = true
	}
	if programPath().MatchString(name) && mode.IsRegular() {
		c.program = true
	}
}

// skips returns a function that excludes links to the interpreter of the environment's folder;
// each executor creates links to its local one.
func (c *contents) skips() func(string) bool {
	own := c.own()
	return func(name string) bool { return !own && isPython(filepath.ToSlash(name)) }
}

// isPython reports whether a member of an environment is its interpreter.
func isPython(name string) bool {
	dir, base := path.Split(name)
	return (dir == "bin/" || strings.HasSuffix(dir, "/bin/")) && strings.Count(dir, "/") < 3 &&
		strings.HasPrefix(base, "python")
}

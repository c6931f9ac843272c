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

	"github.com/tfcluster/tfcluster/cluster/atomicfile"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lockfile"
)

// Bounds of environments, in bytes: one of them unpacked, and all that stay packed at
// the driver or unpacked on an executor.
const (
	maxEnvironment = 16 << 30
	// CacheBytes is how much stays of environments that no cluster uses.
	CacheBytes = 24 << 30
)

// environmentFile is where a cluster's folder says which environment it has.
const environmentFile = "environment.json"

// Environment packs a folder, or takes a packed archive, once for its content, and
// says what is in it. told hears how many bytes were read. Executors get the same
// environment as long as the cluster lives.
func (d *Depot) Environment(ctx context.Context, given string, told func(int64)) (*clusterpb.Environment, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	if e := d.Packed(); e != nil {
		return e, nil
	}
	e, err := d.pack(ctx, given, told)
	if err != nil {
		return nil, fmt.Errorf("--venv %s: %w", given, plain(err))
	}
	return e, nil
}

// Packed is the environment that was packed, nil before.
func (d *Depot) Packed() *clusterpb.Environment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.packed
}

func (d *Depot) pack(ctx context.Context, given string, told func(int64)) (*clusterpb.Environment, error) {
	top, err := filepath.EvalSymlinks(given)
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
	// Two clusters that begin at once pack it once.
	lock, err := lockfile.Open(ctx, filepath.Join(d.cache, "lock"), lockfile.Exclusive)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	sum := sha256.Sum256([]byte("1\x00" + top + "\x00" + print))
	note := filepath.Join(d.cache, hex.EncodeToString(sum[:16])+".json")
	e := d.noted(note)
	if e == nil {
		if e, err = d.packAnew(ctx, top, given, told); err != nil {
			return nil, err
		}
	}
	text, err := protojson.Marshal(e)
	if err != nil {
		return nil, err
	}
	// At last: what is noted is there.
	if err := errors.Join(atomicfile.Write(note, text), atomicfile.Write(filepath.Join(d.dir, environmentFile), text)); err != nil {
		return nil, err
	}
	d.hold(e)
	if d.Packed() == nil {
		return nil, errors.New("it was packed, and is gone again: reserve once more")
	}
	sweepPacked(d.cache, e.GetPacked().GetContent().GetSha256(), CacheBytes)
	return e, nil
}

func (d *Depot) packAnew(ctx context.Context, top, given string, told func(int64)) (*clusterpb.Environment, error) {
	info, err := os.Stat(top)
	if err != nil {
		return nil, err
	}
	s := &clusterpb.Shipped{Name: filepath.Base(given)}
	var found *contents
	if info.IsDir() {
		if found, err = lookInto(top); err != nil {
			return nil, err
		}
		s.Form = formTarGz
		s.Content, err = keep(d.cache, func(w io.Writer) error {
			z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
			if err != nil {
				return err
			}
			return errors.Join(pack(ctx, top, z, maxEnvironment, found.skips(), told), z.Close())
		})
	} else {
		ok := false
		if s.Form, _, ok = formOf(top); !ok {
			return nil, errNoEnvironment
		}
		if found, err = lookThrough(top, s.GetForm()); err != nil {
			return nil, err
		}
		s.Content, err = keep(d.cache, func(w io.Writer) error { return copyFile(ctx, w, top, maxEnvironment, told) })
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

// noted is a packed environment that is in the cache.
func (d *Depot) noted(file string) *clusterpb.Environment {
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

// restore takes up what an earlier driver had packed.
func (d *Depot) restore() {
	if e := d.noted(filepath.Join(d.dir, environmentFile)); e != nil {
		d.hold(e)
	}
}

func (d *Depot) hold(e *clusterpb.Environment) {
	file := filepath.Join(d.cache, e.GetPacked().GetContent().GetSha256())
	f, err := os.Open(file)
	if err != nil {
		return
	}
	touch(file)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.environment, d.packed = f, e
}

// contents is what tells of an environment.
type contents struct {
	config  string          // pyvenv.cfg's text
	venv    bool            // there is one
	library map[string]bool // "3.12": lib/python3.12 is there
	program bool            // bin/python3.12 is a file: an interpreter comes along
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

// own is whether an interpreter comes along: a venv's is its base's.
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
	return "", errors.New("it is no Python environment: there is neither pyvenv.cfg nor bin/python with its lib/python3.N in it")
}

// CheckEnvironment says at once whether a folder or a file may be an environment. What
// is in an archive is seen when it is read.
func CheckEnvironment(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return plain(err)
	}
	if info.IsDir() {
		_, err := lookInto(path)
		return err
	}
	if _, _, ok := formOf(path); !ok {
		return errNoEnvironment
	}
	return nil
}

var errNoEnvironment = errors.New("want an environment's folder, or .tar.gz, .tgz, .tar or .zip of one")

// lookInto looks at an environment's folder.
func lookInto(dir string) (*contents, error) {
	c := &contents{library: map[string]bool{}}
	text, err := os.ReadFile(filepath.Join(dir, "pyvenv.cfg"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c.config, c.venv = string(text), err == nil
	for _, pattern := range []string{"lib/python3.*", "bin/python3.*"} {
		names, _ := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern))) // it is well formed
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

// lookThrough looks at a packed environment. It may lie in one folder of the archive.
func lookThrough(file, form string) (*contents, error) {
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

// skips is what of an environment's folder stays behind: the links to the interpreter
// it was made with, which each executor makes to its own.
func (c *contents) skips() func(string) bool {
	own := c.own()
	return func(name string) bool { return !own && isPython(filepath.ToSlash(name)) }
}

// isPython is whether a member of an environment is its interpreter.
func isPython(name string) bool {
	dir, base := path.Split(name)
	return (dir == "bin/" || strings.HasSuffix(dir, "/bin/")) && strings.Count(dir, "/") < 3 && strings.HasPrefix(base, "python")
}

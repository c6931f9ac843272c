package ship

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/atomicfile"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lockfile"
)

// unpackTimeout bounds what an environment has run once it is unpacked.
const unpackTimeout = 5 * time.Minute

// Environments are those unpacked on one host for one user. Agents share the folder:
// each environment in it has a lock, which who uses it holds together with others.
type Environments struct {
	Dir  string
	Host string // its name for people
	Most int64  // how much stays of what nobody uses, in bytes; 0: CacheBytes
}

// Environment is one that is held: it stays where it is until Close.
type Environment struct {
	Python string // its interpreter
	lock   *os.File
}

// Close lets the environment go.
func (e *Environment) Close() error { return e.lock.Close() }

// note is what stands in an environment's lock: it is whole.
type note struct {
	Bytes int64 `json:"bytes"`
}

// Take gives an environment, unpacking what fetch writes when it is not here. Where it
// brings no interpreter, the first of candidates that is of its version is made its
// base; there being none is told before anything is fetched. told hears, in words, what
// takes its time.
func (s *Environments) Take(ctx context.Context, e *clusterpb.Environment, candidates []string, fetch func(context.Context, io.Writer) error, told func(string)) (*Environment, error) {
	base := ""
	if !e.GetOwn() {
		var err error
		if base, err = findPython(ctx, e.GetPython(), candidates); err != nil {
			return nil, fmt.Errorf("--venv %s is for Python %s, which %s does not have (%w): install it there, or pack an environment that brings its own (conda-pack)",
				e.GetPacked().GetName(), e.GetPython(), s.Host, err)
		}
	}
	taken, err := s.take(ctx, e, base, fetch, told)
	if err != nil {
		return nil, fmt.Errorf("--venv %s on %s: %w", e.GetPacked().GetName(), s.Host, plain(err))
	}
	return taken, nil
}

func (s *Environments) take(ctx context.Context, e *clusterpb.Environment, base string, fetch func(context.Context, io.Writer) error, told func(string)) (*Environment, error) {
	digest := e.GetPacked().GetContent().GetSha256()
	if !digestName().MatchString(digest) {
		return nil, fmt.Errorf("%q is no SHA-256", digest)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Dir, digest[:32])
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	home, err := s.share(ctx, dir, lock, e, fetch, told)
	if err == nil && base != "" {
		err = rebase(home, base, e.GetPython())
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	touch(lock.Name())
	s.sweep(lock.Name())
	return &Environment{Python: filepath.Join(home, "bin", "python"+e.GetPython()), lock: lock}, nil
}

// share returns where the environment is, with its lock held together with others. One
// alone makes it, while the others wait.
func (s *Environments) share(ctx context.Context, dir string, lock *os.File, e *clusterpb.Environment, fetch func(context.Context, io.Writer) error, told func(string)) (home string, err error) {
	for {
		if lockfile.Try(lock, lockfile.Shared) == nil && whole(lock) {
			return homeOf(dir)
		}
		if lockfile.Try(lock, lockfile.Exclusive) == nil {
			if err := s.complete(ctx, dir, lock, e, fetch, told); err != nil {
				return "", err
			}
			continue // between the two locks there is a moment without one
		}
		_ = lockfile.Unlock(lock) // nobody gets it alone else
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// complete makes the environment whole where it is not. The caller holds its lock alone.
func (s *Environments) complete(ctx context.Context, dir string, lock *os.File, e *clusterpb.Environment, fetch func(context.Context, io.Writer) error, told func(string)) error {
	if whole(lock) {
		return nil
	}
	home, err := s.unpack(ctx, dir, lock, e, fetch, told)
	if err != nil {
		return err
	}
	if e.GetOwn() {
		if err := unpackConda(ctx, home, filepath.Join(home, "bin", "python"+e.GetPython())); err != nil {
			return err
		}
	}
	text, err := json.Marshal(note{treeBytes(dir)})
	if err != nil {
		return err
	}
	_, err = lock.WriteAt(text, 0)
	return err
}

// unpack fetches an environment and gives it its place.
func (s *Environments) unpack(ctx context.Context, dir string, lock *os.File, e *clusterpb.Environment, fetch func(context.Context, io.Writer) error, told func(string)) (home string, err error) {
	old, _ := filepath.Glob(dir + ".aside-*") // of an agent that was killed; the pattern is well formed
	for _, path := range append(old, dir) {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	if err := lock.Truncate(0); err != nil {
		return "", err
	}
	archive, err := os.CreateTemp(s.Dir, filepath.Base(dir)+".aside-")
	if err != nil {
		return "", err
	}
	defer os.Remove(archive.Name())
	defer archive.Close()
	content := e.GetPacked().GetContent()
	sum := sha256.New()
	progress := &teller{of: content.GetSize(), told: told}
	if err := fetch(ctx, io.MultiWriter(archive, sum, progress)); err != nil {
		return "", fmt.Errorf("fetch it to %s: %w", s.Dir, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != content.GetSha256() {
		return "", fmt.Errorf("what was fetched is another: its SHA-256 is %.12s", got)
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	told("unpacking the environment")
	aside := dir + ".aside-tree"
	defer os.RemoveAll(aside)
	if err := Unpack(ctx, archive, e.GetPacked().GetForm(), aside, isPython); err != nil {
		return "", fmt.Errorf("unpack it in %s: %w", s.Dir, err)
	}
	if err := os.Rename(aside, dir); err != nil {
		return "", err
	}
	return homeOf(dir)
}

// teller says how much of something has come, now and then.
type teller struct {
	of, n int64
	last  time.Time
	told  func(string)
}

func (t *teller) Write(p []byte) (int, error) {
	t.n += int64(len(p))
	if time.Since(t.last) > 500*time.Millisecond || t.n == t.of {
		t.last = time.Now()
		t.told(fmt.Sprintf("fetching the environment, %d of %d MB", t.n>>20, (t.of+1<<20-1)>>20))
	}
	return len(p), nil
}

// whole is whether the environment of a lock was unpacked to its end.
func whole(lock *os.File) bool { return noted(lock.Name()).Bytes > 0 }

func noted(lock string) note {
	var n note
	text, err := os.ReadFile(lock)
	if err != nil || json.Unmarshal(text, &n) != nil {
		return note{}
	}
	return n
}

// homeOf is where in a folder the environment lies: there, or in the only folder.
func homeOf(dir string) (string, error) {
	for _, pattern := range []string{"lib/python3.*", "*/lib/python3.*"} {
		found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err == nil && len(found) > 0 {
			return filepath.Dir(filepath.Dir(found[0])), nil
		}
	}
	return "", errors.New("there is no lib/python3.N in it")
}

// sweep removes environments that nobody uses, the longest unused first, down to what
// is kept. now is the lock of the one in use.
func (s *Environments) sweep(now string) {
	locks, _ := filepath.Glob(filepath.Join(s.Dir, "*.lock")) // the pattern is well formed
	most := s.Most
	if most == 0 {
		most = CacheBytes
	}
	var all []cached
	for _, path := range locks {
		info, err := os.Stat(path)
		switch bytes := noted(path).Bytes; {
		case err != nil:
		case path == now:
			most -= bytes
		case bytes > 0:
			all = append(all, cached{path, bytes, info.ModTime()})
		}
	}
	for _, c := range surplus(all, most) {
		s.remove(c.path)
	}
}

// remove removes an environment that nobody uses. Its lock stays: another agent may
// have opened it.
func (s *Environments) remove(lock string) {
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if lockfile.Try(f, lockfile.Exclusive) != nil || f.Truncate(0) != nil {
		return
	}
	os.RemoveAll(strings.TrimSuffix(lock, ".lock")) // what stays is not whole, and goes before it is unpacked anew
}

// rebase makes an interpreter of this host the base of an environment.
func rebase(home, base, version string) error {
	for _, name := range []string{"python", "python3", "python" + version} {
		file := filepath.Join(home, "bin", name)
		target := base
		if name != "python"+version {
			target = "python" + version
		}
		if now, err := os.Readlink(file); err == nil && now == target {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		aside := file + "." + rand.Text() // other agents do the same
		if err := errors.Join(os.Symlink(target, aside), os.Rename(aside, file)); err != nil {
			return err
		}
	}
	config := filepath.Join(home, "pyvenv.cfg")
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var now bytes.Buffer
	fmt.Fprintf(&now, "home = %s\n", filepath.Dir(base))
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, "=")
		switch strings.TrimSpace(key) {
		case "home", "executable", "command", "base-prefix", "base-exec-prefix", "base-executable":
		default:
			fmt.Fprintln(&now, strings.TrimRight(line, "\r\n"))
		}
	}
	if bytes.Equal(text, now.Bytes()) {
		return nil
	}
	return atomicfile.Write(config, now.Bytes())
}

// unpackConda lets an environment of conda-pack's correct the paths in it.
func unpackConda(ctx context.Context, home, python string) error {
	script := filepath.Join(home, "bin", "conda-unpack")
	if !exists(script) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, unpackTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, script)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("conda-unpack: %w: %s", err, lines[len(lines)-1])
	}
	return nil
}

// findTimeout bounds how long one interpreter may take to say its version.
const findTimeout = 4 * time.Second

const whoAreYou = `import os, sys
print("%d.%d" % sys.version_info[:2])
print(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))`

// findPython is the first of these interpreters that has a version, by its path; that
// of a virtual environment is its base's.
func findPython(ctx context.Context, version string, candidates []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	var have []string
	seen := map[string]bool{}
	for _, name := range append(candidates, "python"+version, "python3") {
		path, err := exec.LookPath(name)
		if err != nil || seen[path] {
			continue
		}
		seen[path] = true
		cmd := exec.CommandContext(ctx, path, "-I", "-S", "-c", whoAreYou)
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		said := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(said) != 2 {
			continue
		}
		if said[0] == version && filepath.IsAbs(said[1]) {
			return said[1], nil
		}
		have = append(have, fmt.Sprintf("%s is %s", path, said[0]))
	}
	if len(have) == 0 {
		return "", errors.New("there is no Python at all")
	}
	return "", errors.New(strings.Join(have, ", "))
}

package ship

import (
	"bytes"
	"cmp"
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

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/atomicfile"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// unpackTimeout is the timeout of an environment's conda-unpack script.
const unpackTimeout = 5 * time.Minute

// Environments are the unpacked environments of one host and user. Agents share the folder:
// each environment has a lock file, which its users hold in shared mode.
type Environments struct {
	Dir  string
	Host string // for messages
	Most int64  // limit for unused environments in bytes; 0: CacheBytes
}

// Environment is an environment in use: it is not removed before Close.
type Environment struct {
	Python string // path of its interpreter
	lock   *os.File
}

// Close releases the environment.
func (e *Environment) Close() error { return e.lock.Close() }

// note is the content of an environment's lock file once it is complete.
type note struct {
	Bytes int64 `json:"bytes"`
}

// Take returns an environment and unpacks what fetch writes if it is not there yet. If the
// environment contains no interpreter, the first of candidates with its Python version becomes
// its base; if there is none, Take fails before it fetches anything. progress is called with
// descriptions of slow steps.
func (s *Environments) Take(ctx context.Context, e *clusterpb.Environment, candidates []string,
	fetch func(context.Context, io.Writer) error, progress func(string),
) (*Environment, error) {
	base := ""
	if !e.GetOwn() {
		var err error
		if base, err = findPython(ctx, e.GetPython(), candidates); err != nil {
			return nil, fmt.Errorf("--venv %s is for Python %s, which %s does not have (%w): install it there, "+
				"or pack an environment that brings its own (conda-pack)",
				e.GetPacked().GetName(), e.GetPython(), s.Host, err)
		}
	}
	taken, err := s.take(ctx, e, base, fetch, progress)
	if err != nil {
		return nil, fmt.Errorf("--venv %s on %s: %w", e.GetPacked().GetName(), s.Host, oneLineError{err})
	}
	return taken, nil
}

func (s *Environments) take(ctx context.Context, e *clusterpb.Environment, base string,
	fetch func(context.Context, io.Writer) error, progress func(string),
) (*Environment, error) {
	digest := e.GetPacked().GetContent().GetSha256()
	if !digestName().MatchString(digest) {
		return nil, errtext.Fault("the SHA-256 of the environment is %q", digest)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Dir, digest[:32])
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	home, err := s.share(ctx, dir, lock, e, fetch, progress)
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

// share locks the environment in shared mode and returns its path. One agent creates it in
// exclusive mode while the others wait.
func (s *Environments) share(ctx context.Context, dir string, lock *os.File, e *clusterpb.Environment,
	fetch func(context.Context, io.Writer) error, progress func(string),
) (home string, err error) {
	for {
		if lockfile.Try(lock, lockfile.Shared) == nil && complete(lock) {
			return homeOf(dir)
		}
		if lockfile.Try(lock, lockfile.Exclusive) == nil {
			if err := s.complete(ctx, dir, lock, e, fetch, progress); err != nil {
				return "", err
			}
			continue // the lock is not held for a moment between the two modes
		}
		_ = lockfile.Unlock(lock) // otherwise no agent could lock it exclusively
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// complete creates the environment if it is not complete. The caller holds its lock in
// exclusive mode.
func (s *Environments) complete(ctx context.Context, dir string, lock *os.File, e *clusterpb.Environment,
	fetch func(context.Context, io.Writer) error, progress func(string),
) error {
	if complete(lock) {
		return nil
	}
	home, err := s.unpack(ctx, dir, lock, e, fetch, progress)
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

// unpack fetches an environment and unpacks it to dir.
func (s *Environments) unpack(ctx context.Context, dir string, lock *os.File, e *clusterpb.Environment,
	fetch func(context.Context, io.Writer) error, progress func(string),
) (home string, err error) {
	old, _ := filepath.Glob(dir + ".aside-*") // left by a killed agent; Glob cannot fail: the pattern is valid
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
	counted := &progressWriter{size: content.GetSize(), report: progress}
	if err := fetch(ctx, io.MultiWriter(archive, sum, counted)); err != nil {
		return "", fmt.Errorf("fetch it to %s: %w", s.Dir, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != content.GetSha256() {
		return "", fmt.Errorf("the file was damaged on the way (its SHA-256 is %.12s…): reserve again", got)
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	progress("unpacking the environment")
	temp := dir + ".aside-tree"
	defer os.RemoveAll(temp)
	if err := Unpack(ctx, archive, e.GetPacked().GetForm(), temp, isPython); err != nil {
		return "", fmt.Errorf("unpack the environment in %s: %w", s.Dir, err)
	}
	if err := os.Rename(temp, dir); err != nil {
		return "", err
	}
	return homeOf(dir)
}

// progressWriter reports how much has been written, at intervals.
type progressWriter struct {
	size, n int64
	last    time.Time
	report  func(string)
}

func (w *progressWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	if time.Since(w.last) > 500*time.Millisecond || w.n == w.size {
		w.last = time.Now()
		w.report(fmt.Sprintf("fetching the environment, %d of %d MB", w.n>>20, (w.size+1<<20-1)>>20))
	}
	return len(p), nil
}

// complete reports whether the environment of a lock file was unpacked completely.
func complete(lock *os.File) bool { return noteOf(lock.Name()).Bytes > 0 }

func noteOf(lock string) note {
	var n note
	text, err := os.ReadFile(lock)
	if err != nil || json.Unmarshal(text, &n) != nil {
		return note{}
	}
	return n
}

// homeOf returns the folder of the environment: dir, or the only folder in it.
func homeOf(dir string) (string, error) {
	for _, pattern := range []string{"lib/python3.*", "*/lib/python3.*"} {
		found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err == nil && len(found) > 0 {
			return filepath.Dir(filepath.Dir(found[0])), nil
		}
	}
	return "", errors.New("the archive of the environment contains no lib/python3.N: pack the folder of an environment")
}

// sweep removes the least recently used environments down to the limit; environments in use
// stay. now is the lock file of the current one.
func (s *Environments) sweep(now string) {
	locks, _ := filepath.Glob(filepath.Join(s.Dir, "*.lock")) // Glob cannot fail: the pattern is valid
	most := cmp.Or(s.Most, CacheBytes)
	var all []cached
	for _, path := range locks {
		info, err := os.Stat(path)
		switch bytes := noteOf(path).Bytes; {
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

// remove removes an unused environment. Its lock file stays, because another agent may have
// opened it.
func (s *Environments) remove(lock string) {
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if lockfile.Try(f, lockfile.Exclusive) != nil || f.Truncate(0) != nil {
		return
	}
	// Remains are not complete, and are removed before it is unpacked again.
	os.RemoveAll(strings.TrimSuffix(lock, ".lock"))
}

// rebase sets the base interpreter of an environment.
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
		temp := file + "." + rand.Text() // other agents may do the same
		if err := errors.Join(os.Symlink(target, temp), os.Rename(temp, file)); err != nil {
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

// unpackConda runs conda-unpack, if present, which corrects the paths in an environment.
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

// findTimeout is the timeout for all interpreters to report their versions.
const findTimeout = 4 * time.Second

const versionScript = `import os, sys
print("%d.%d" % sys.version_info[:2])
print(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))`

// findPython returns the path of the first interpreter with the version; for that of a virtual
// environment, the path of its base.
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
		cmd := exec.CommandContext(ctx, path, "-I", "-S", "-c", versionScript)
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		reported := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(reported) != 2 {
			continue
		}
		if reported[0] == version && filepath.IsAbs(reported[1]) {
			return reported[1], nil
		}
		have = append(have, fmt.Sprintf("%s is %s", path, reported[0]))
	}
	if len(have) == 0 {
		return "", errors.New("no Python found")
	}
	return "", errors.New(strings.Join(have, ", "))
}

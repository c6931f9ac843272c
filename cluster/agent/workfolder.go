package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// tellFrom is the size from which on it is said that files are fetched, in bytes.
const tellFrom = 64 << 20

// givenFiles are the contents of --files on an executor that does not share the
// driver's disk. They stay until another launch names others.
type givenFiles struct {
	blobs *blobStore // this agent's alone
	host  string

	mu sync.Mutex
	// guarded by mu
	held map[string]*os.File // by digest: what the newest launch named
}

// bring fetches what a launch names and is not here, and gives up what it does not name.
func (g *givenFiles) bring(ctx context.Context, files []*clusterpb.Shipped, tell func(string)) (map[string]*os.File, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var lacking int64
	for _, s := range files {
		if g.held[s.GetContent().GetSha256()] == nil {
			lacking += s.GetContent().GetSize()
		}
	}
	if lacking >= tellFrom {
		tell(fmt.Sprintf("fetching the files given: %d MB", lacking>>20))
	}
	held := map[string]*os.File{}
	for _, s := range files {
		digest := s.GetContent().GetSha256()
		if f := g.held[digest]; f != nil {
			held[digest] = f
			delete(g.held, digest)
		}
		if held[digest] != nil {
			continue
		}
		f, err := g.blobs.hold(ctx, s.GetContent())
		if err != nil {
			maps.Copy(g.held, held) // they stay for the next try
			return nil, g.failed(s, g.blobs.dir, err)
		}
		held[digest] = f
	}
	for _, f := range g.held {
		f.Close()
	}
	g.held = held
	g.blobs.prune()
	return held, nil
}

func (g *givenFiles) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.held {
		f.Close()
	}
	g.held = map[string]*os.File{}
}

// failed says which file is not here, and where it was to be.
func (g *givenFiles) failed(s *clusterpb.Shipped, dir string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("--files %s: the disk of %s on %s is full: %w", s.GetName(), dir, g.host, err)
	}
	return fmt.Errorf("--files %s on %s: %w", s.GetName(), g.host, err)
}

// workFolder makes the folder that a task has for itself, with the files given in it:
// copies of its own, which go with it.
func (a *Agent) workFolder(ctx context.Context, t *task) (string, error) {
	l := t.launch
	held, err := a.disk.given.bring(ctx, l.GetFiles(), func(text string) { t.note(text, false) })
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("work-%d.%d-%s", l.GetRun(), l.GetAttempt(), strings.ReplaceAll(l.GetTask(), ":", "-"))
	dir := filepath.Join(a.disk.own.dir, name)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return "", fmt.Errorf("make the task's folder on %s: %w", a.self.host, err)
	}
	t.disk.folder = dir
	for _, s := range l.GetFiles() {
		if err := ship.Place(ctx, held[s.GetContent().GetSha256()].Name(), s, dir); err != nil {
			return "", a.disk.given.failed(s, dir, err)
		}
	}
	return dir, nil
}

// leaveFolder removes the task's own folder, and says what goes with it that the program
// wrote there.
func (t *task) leaveFolder() {
	if t.disk.folder == "" {
		return
	}
	given := map[string]bool{"__pycache__": true}
	for _, s := range t.launch.GetFiles() {
		first, _, _ := strings.Cut(s.GetName(), "/")
		given[first] = true
	}
	var wrote []string
	entries, _ := os.ReadDir(t.disk.folder) // nothing is said of what cannot be read
	for _, e := range entries {
		if !given[e.Name()] && !strings.HasPrefix(e.Name(), ".") {
			wrote = append(wrote, e.Name())
		}
	}
	if len(wrote) > 0 {
		t.note(fmt.Sprintf("%s was written to the task's own folder, which goes with it: what is to stay belongs below ctx.dir", strings.Join(wrote[:min(3, len(wrote))], ", ")), true)
	}
	os.RemoveAll(t.disk.folder)
}

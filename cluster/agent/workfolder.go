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

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// noteSize is the size in bytes from which on fetching files is noted.
const noteSize = 64 << 20

// shippedFiles are the contents of --files on an executor that does not share the driver's
// disk. They are kept until a launch names others.
type shippedFiles struct {
	blobs *blobStore // not shared with other agents
	host  string

	mu sync.Mutex
	// guarded by mu
	held map[string]*os.File // by digest, of the newest launch
}

// fetch fetches the files of a launch that are missing, and releases those that it does not
// name. It returns them by digest.
func (g *shippedFiles) fetch(ctx context.Context, files []*clusterpb.Shipped,
	tell func(string),
) (map[string]*os.File, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var lacking int64
	for _, s := range files {
		if g.held[s.GetContent().GetSha256()] == nil {
			lacking += s.GetContent().GetSize()
		}
	}
	if lacking >= noteSize {
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
			maps.Copy(g.held, held) // kept for the next attempt
			return nil, g.wrap(s, err)
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

func (g *shippedFiles) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.held {
		f.Close()
	}
	g.held = map[string]*os.File{}
}

// wrap adds the file's name and the host to an error.
func (g *shippedFiles) wrap(s *clusterpb.Shipped, err error) error {
	return fmt.Errorf("--files %s on %s: %w", s.GetName(), g.host, err)
}

// workFolder creates the task's own folder with copies of --files in it. It is removed with the
// task.
func (a *Agent) workFolder(ctx context.Context, t *task) (string, error) {
	l := t.launch
	held, err := a.disk.shipped.fetch(ctx, l.GetFiles(), func(text string) { t.note(text, false) })
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
			return "", a.disk.shipped.wrap(s, err)
		}
	}
	return dir, nil
}

// removeFolder removes the task's own folder, and notes which new files of the program are lost
// with it.
func (t *task) removeFolder() {
	if t.disk.folder == "" {
		return
	}
	given := map[string]bool{"__pycache__": true}
	for _, s := range t.launch.GetFiles() {
		first, _, _ := strings.Cut(s.GetName(), "/")
		given[first] = true
	}
	var wrote []string
	entries, _ := os.ReadDir(t.disk.folder) // an unreadable folder is not reported
	for _, e := range entries {
		if !given[e.Name()] && !strings.HasPrefix(e.Name(), ".") {
			wrote = append(wrote, e.Name())
		}
	}
	if len(wrote) > 0 {
		t.note(fmt.Sprintf("%s in the task's own folder is removed with the task: write files that you want to keep "+
			"below ctx.dir", strings.Join(wrote[:min(3, len(wrote))], ", ")), true)
	}
	os.RemoveAll(t.disk.folder)
}

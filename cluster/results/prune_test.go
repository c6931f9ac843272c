package results

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPrune: the records and lines of old runs are removed. Runs with recent lines, runs whose programs left
// files, runs of live clusters and all other files stay.
func TestPrune(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), RootName)
	old, before := time.Now().Add(-100*time.Hour), time.Now().Add(-50*time.Hour)
	files := map[string]time.Time{
		"a/run-001/run.json":                         old,
		"a/run-001/run-manifest.json":                old,
		"a/run-001/tasks/worker-0/000000000000.log":  old,
		"a/run-002/run.json":                         old,
		"b/run-001/run.json":                         old,
		"b/run-001/checkpoints/1/weights":            old,
		"b/run-002/run.json":                         old,
		"c/run-001/run.json":                         old,
		"c/run-001/logs/events.out.tfevents.1":       time.Now(),
		"live/run-001/run.json":                      old,
		"mine/notes.txt":                             old,
		"mine/run-001/run.json":                      old,
		"open/run-001/run.json":                      old,
		"young/run-001/run.json":                     old,
		"young/run-001/tasks/worker-0/000000000.log": time.Now(),
	}
	for name, at := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		state := "finished"
		if strings.HasPrefix(name, "open/") {
			state = "running"
		}
		if err := os.WriteFile(path, []byte(`{"state":"`+state+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range files {
		// A folder keeps its time while lines are appended to a file in it, so all of them are old.
		if !at.Equal(old) && !strings.HasPrefix(name, "young/") {
			continue
		}
		for dir := filepath.Dir(filepath.Join(root, name)); dir != root; dir = filepath.Dir(dir) {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := Prune(t.Context(), LocalStorage{}, root, before,
		func(dir string) bool { return filepath.Base(dir) == "live" })
	if want := (Pruned{Runs: 4, Folders: 1, Kept: 1, Open: 1}); err != nil || got != want {
		t.Errorf("it removed %+v, %v, want %+v", got, err, want)
	}
	for name, stays := range map[string]bool{
		"a": false, "b/run-001/checkpoints/1/weights": true, "b/run-001/run.json": true, "b/run-002": false,
		"c/run-001/run.json": true, "live/run-001/run.json": true, "mine/notes.txt": true, "mine/run-001": false,
		"young/run-001/tasks/worker-0/000000000.log": true, "open/run-001/run.json": true,
	} {
		if _, err := os.Stat(filepath.Join(root, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
	mine := filepath.Join(root, "b")
	if _, err := Prune(t.Context(), LocalStorage{}, mine, before,
		func(dir string) bool { return dir == mine }); !errors.Is(err, ErrInUse) {
		t.Errorf("the runs of a live cluster: %v", err)
	}
	if got := Root("hdfs://nn/user/a/tfcluster-runs/b"); got != "hdfs://nn/user/a/tfcluster-runs" {
		t.Errorf("the root is %s", got)
	}
	if got := Root("/data/mine"); got != "/data/mine" {
		t.Errorf("the root is %s", got)
	}
}

// unreadable is a storage with a folder that cannot be listed and one that is removed meanwhile.
type unreadable struct{ LocalStorage }

func (s unreadable) List(ctx context.Context, name string) ([]fs.FileInfo, error) {
	switch filepath.Base(name) {
	case "a":
		return nil, fs.ErrPermission
	case "b":
		return nil, fs.ErrNotExist
	}
	return s.LocalStorage.List(ctx, name)
}

// TestPruneGoesOn: Prune reports a folder that cannot be read and prunes the others. Runs in a folder that
// itself has the name of the folder of clusters are pruned as runs, not as clusters.
func TestPruneGoesOn(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), RootName)
	for _, name := range []string{"a/run-001", "b/run-001", "c/run-001", "run-001", "run-002/checkpoints/run-003"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	model := filepath.Join(root, "run-002/checkpoints/model")
	if err := os.WriteFile(model, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Prune(t.Context(), unreadable{}, root, time.Now().Add(time.Hour), func(string) bool { return false })
	if want := (Pruned{Runs: 2, Folders: 1, Kept: 1}); got != want || !errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it removed %+v, %v, want %+v", got, err, want)
	}
	if _, err := os.Stat(model); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "d/a/run-001"), 0o700); err != nil { // a second one that cannot be read
		t.Fatal(err)
	}
	_, err = Prune(t.Context(), unreadable{}, root, time.Now().Add(time.Hour), func(string) bool { return false })
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line", err)
	}
}

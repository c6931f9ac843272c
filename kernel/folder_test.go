package kernel

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSweepFolders(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	held, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * folderYoung)
	folderOf := func(name string, at time.Time) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(path, "k"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	left, young, other := folderOf(folderPrefix+"left", old), folderOf(folderPrefix+"young", time.Now()),
		folderOf("another", old)
	if err := os.Chtimes(held.path, old, old); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, folderPrefix+"link")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}

	next, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("the folder of a killed kernel still exists: %v", err)
	}
	for _, path := range []string{held.path, young, filepath.Join(other, "k"), link, next.path} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("removed a folder in use: %v", err)
		}
	}
	for _, f := range []*folder{held, next} {
		if err := f.remove(); err != nil {
			t.Error(err)
		}
	}
}

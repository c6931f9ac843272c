package python

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestExtract(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "cache")
	var all sync.WaitGroup
	found := make([]string, 8)
	for i := range found {
		all.Go(func() {
			dir, err := Extract(cache)
			if err != nil {
				t.Errorf("Extract: %v", err)
			}
			found[i] = dir
		})
	}
	all.Wait()
	for _, dir := range found {
		if dir != found[0] {
			t.Fatalf("Extract gave %q and %q", found[0], dir)
		}
	}
	checkWhole(t, found[0])
	left, err := filepath.Glob(filepath.Join(cache, ".python-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// checkWhole: all modules of the package are extracted, those of packages in it too.
func checkWhole(t *testing.T, dir string) {
	t.Helper()
	modules := 0
	err := filepath.WalkDir("tfcluster", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".py" {
			return err
		}
		modules++
		_, err = os.Stat(filepath.Join(dir, path))
		return err
	})
	if err != nil || modules == 0 {
		t.Errorf("the package is not whole: %d modules, %v", modules, err)
	}
}

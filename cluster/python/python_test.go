package python

import (
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
	if _, err := os.Stat(filepath.Join(found[0], "tfcluster", "__init__.py")); err != nil {
		t.Errorf("the package is not whole: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(cache, ".python-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

package driver

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLastRun: a directory with more than 999 runs is numbered on.
func TestLastRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if n := lastRun(filepath.Join(dir, "none")); n != 0 {
		t.Errorf("without a folder the last run is %d", n)
	}
	for _, name := range []string{"run-001", "run-999", "run-1000", "run-1005", "run-2000.old", "runs"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if n := lastRun(dir); n != 1005 {
		t.Errorf("the last run is %d, want 1005", n)
	}
}

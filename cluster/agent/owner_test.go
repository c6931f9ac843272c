package agent

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// TestKeepFolder: whoever finds the file of an agent that lives finds it locked, from
// the first moment on.
func TestKeepFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "agent")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var found, taken atomic.Int32
	over, done := make(chan struct{}), make(chan struct{})
	go func() { // looks as another agent of the host does, all the time
		defer close(done)
		for {
			select {
			case <-over:
				return
			default:
			}
			f, err := os.Open(filepath.Join(dir, "alive"))
			if err != nil {
				continue
			}
			if lockfile.Try(f, lockfile.Exclusive) == nil {
				taken.Add(1)
			}
			f.Close()
			found.Add(1)
		}
	}()
	for end := time.Now().Add(time.Minute); found.Load() < 100 && taken.Load() == 0 && time.Now().Before(end); {
		before := found.Load()
		release, err := keepFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		for found.Load() == before && time.Now().Before(end) {
			time.Sleep(50 * time.Microsecond)
		}
		if err := os.Rename(filepath.Join(dir, "alive"), filepath.Join(dir, "before")); err != nil { // locked still
			t.Fatal(err)
		}
		defer release()
	}
	close(over)
	<-done
	if found.Load() == 0 || taken.Load() > 0 {
		t.Errorf("found %d times, and %d times it was taken for a dead agent's", found.Load(), taken.Load())
	}
	if left, err := filepath.Glob(filepath.Join(dir, "alive-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

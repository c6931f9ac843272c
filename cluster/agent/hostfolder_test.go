package agent

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestHostFolder: it is there for as long as one agent is, and goes with the last.
func TestHostFolder(t *testing.T) {
	t.Parallel()
	parent, err := os.MkdirTemp("/tmp", "host") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	dir := filepath.Join(parent, "host-1")
	first, err := keepHostFolder(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := keepHostFolder(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	first()
	if _, err := os.Stat(filepath.Join(dir, hostLock)); err != nil {
		t.Errorf("with one agent left: %v", err)
	}
	second()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after the last agent: %v", err)
	}
	var agents sync.WaitGroup
	for range 8 {
		agents.Go(func() {
			for range 50 {
				release, err := keepHostFolder(t.Context(), dir)
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(dir, "used"), nil, 0o600); err != nil {
					t.Errorf("a folder that is held is gone: %v", err)
				}
				release()
			}
		})
	}
	agents.Wait()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after agents that came and went: %v", err)
	}
}

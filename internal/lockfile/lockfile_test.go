package lockfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestModes: shared locks conflict only with exclusive ones.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		first, second Mode
		held          bool
	}{{Shared, Shared, false}, {Shared, Exclusive, true}, {Exclusive, Shared, true}, {Exclusive, Exclusive, true}} {
		path := filepath.Join(t.TempDir(), "lock")
		first, err := Open(t.Context(), path, tt.first)
		if err != nil {
			t.Fatal(err)
		}
		second, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := Try(second, tt.second); errors.Is(err, ErrHeld) != tt.held {
			t.Errorf("%d while %d is held: %v", tt.second, tt.first, err)
		}
		first.Close()
		if err := Try(second, tt.second); err != nil {
			t.Errorf("%d after %d was closed: %v", tt.second, tt.first, err)
		}
		second.Close()
	}
}

// TestOpenWaits: Open waits until the lock is free or ctx ends.
func TestOpenWaits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Open(t.Context(), path, Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, path, Exclusive); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it is held: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		f, err := Open(context.Background(), path, Exclusive)
		if err == nil {
			err = f.Close()
		}
		got <- err
	}()
	first.Close()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Open did not get the released lock")
	}
}

// TestOpenOfARemovedFile: if the file is removed before its lock is free, Open locks the path's
// new file.
func TestOpenOfARemovedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Open(t.Context(), path, Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	files := make(chan *os.File, 1)
	go func() {
		f, err := Open(context.Background(), path, Exclusive)
		if err != nil {
			t.Error(err)
		}
		files <- f
	}()
	time.Sleep(2 * pollEvery) // Open probably waits now; the test does not depend on it
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	first.Close()
	f := <-files
	if f == nil || !IsCurrent(f) || IsCurrent(first) {
		t.Error("the lock is that of the removed file")
	}
	f.Close()
}

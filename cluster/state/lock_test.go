package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLockDriver: a killed driver holds the lock until its last thread has ended; then another
// driver gets it. While a driver is alive, no other gets it.
func TestLockDriver(t *testing.T) {
	t.Setenv("TFCLUSTER_HOME", t.TempDir())
	dir, err := Dir("c")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	dying, err := os.Create(filepath.Join(dir, "driver.lock"))
	if err == nil {
		err = unix.Flock(int(dying.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { dying.Close() })
	claim, err := LockDriver(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	if err := (&State{Name: "c", Driver: ThisProcess()}).Save(); err != nil {
		t.Fatal(err)
	}
	if _, err := LockDriver(t.Context(), "c"); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a second driver gets %v", err)
	}
}

package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClaim: a driver that was killed holds its claim until the last of its threads has
// ended, and is followed then; a living one is not.
func TestClaim(t *testing.T) {
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
	if _, err := LockDriver(t.Context(), "c"); err == nil || !strings.Contains(err.Error(), "lives already") {
		t.Errorf("a second driver is told %v", err)
	}
}

package clustertest

import (
	"os"
	"strings"
	"testing"
)

// TestShared: it is started once, and ended with what it was given.
func TestShared(t *testing.T) {
	t.Parallel()
	var starts int
	var dir string
	s := Share(func(t testing.TB) string {
		starts++
		dir = t.TempDir()
		return "value"
	})
	if a, b := s.Get(t), s.Get(t); a != "value" || b != "value" || starts != 1 {
		t.Errorf("it gave %q and %q, started %d times", a, b, starts)
	}
	if s.end(false) {
		t.Error("it failed")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
}

// TestSharedFails: what is found at its end fails the package, and a start that fails is
// told to each test.
func TestSharedFails(t *testing.T) {
	t.Parallel()
	left := Share(func(t testing.TB) int {
		t.Cleanup(func() { t.Errorf("something is left") })
		return 1
	})
	left.Get(t)
	if !left.end(false) {
		t.Error("what is left does not fail it")
	}
	broken := Share(func(t testing.TB) int { t.Fatal("no room"); return 1 })
	missing := Share(func(t testing.TB) int { t.Skip("missing: Java"); return 1 })
	for range 2 {
		var failed, skipped fixture
		for s, f := range map[*Shared[int]]*fixture{broken: &failed, missing: &skipped} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.Get(f)
			}()
			<-done
		}
		if !failed.Failed() || !strings.Contains(failed.said(), "no room") || failed.Skipped() {
			t.Errorf("a test of one that did not start hears %q", failed.said())
		}
		if !skipped.Skipped() || skipped.said() != "missing: Java" || skipped.Failed() {
			t.Errorf("a test of one that was skipped hears %q", skipped.said())
		}
	}
	if !broken.end(false) || missing.end(false) {
		t.Error("one that failed does not fail the package, or one that is missing does")
	}
}

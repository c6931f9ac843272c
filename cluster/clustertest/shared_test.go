package clustertest

import (
	"os"
	"strings"
	"testing"
)

// TestShared: the value is started once, and its resources are removed at the end.
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
		t.Errorf("Get returned %q and %q, start was called %d times", a, b, starts)
	}
	if !s.End(false) {
		t.Error("the fixture failed")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
}

// TestSharedFails: an error in a cleanup fails the package, and an error of start fails each test.
func TestSharedFails(t *testing.T) {
	t.Parallel()
	left := Share(func(t testing.TB) int {
		t.Cleanup(func() { t.Errorf("something is left") })
		return 1
	})
	left.Get(t)
	if left.End(false) {
		t.Error("an error in a cleanup does not fail the fixture")
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
		if !failed.Failed() || !strings.Contains(failed.messages(), "no room") || failed.Skipped() {
			t.Errorf("a test with a fixture that failed reports %q", failed.messages())
		}
		if !skipped.Skipped() || skipped.messages() != "missing: Java" || skipped.Failed() {
			t.Errorf("a test with a fixture that was skipped reports %q", skipped.messages())
		}
	}
	if broken.End(false) || !missing.End(false) {
		t.Error("a failed fixture does not fail the package, or a skipped one does")
	}
}

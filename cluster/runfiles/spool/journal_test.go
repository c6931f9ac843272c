package spool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJournalIsWrittenAgain: after a failed save, for example on a full disk, the next save
// writes the journal even without further changes.
func TestJournalIsWrittenAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := &Spool{root: root, contents: contents{gone: map[string]bool{"run-001/checkpoints/old": true}, changed: true}}
	obstacle := filepath.Join(dir, journalName+".new")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.save(); err == nil {
		t.Fatal("save returned no error")
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, journalName))
	if err != nil || !strings.Contains(string(b), "run-001/checkpoints/old") {
		t.Errorf("the journal is %q: %v", b, err)
	}
}

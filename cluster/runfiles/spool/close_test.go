package spool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilesLeft: the error of Close says what becomes of the files that were not uploaded.
func TestFilesLeft(t *testing.T) {
	t.Parallel()
	for temporary, want := range map[bool]string{false: "are stored in ", true: "are lost with this container"} {
		s, err := Open(t.Context(), Config{Dir: "hdfs://nn/runs", Parent: t.TempDir(), Temporary: temporary})
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(s.Folder(), "run-001", "model")
		if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err == nil ||
			!strings.Contains(err.Error(), "files of hdfs://nn/runs could not be uploaded (1): they "+want) {
			t.Errorf("temporary %v: %v", temporary, err)
		}
	}
}

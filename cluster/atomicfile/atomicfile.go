// Package atomicfile writes files that are never seen half written.
package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
)

// Write writes aside and renames, so that a reader finds the old or the new
// content and never half of it. The file is for its owner alone.
func Write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error to tell is the first one
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

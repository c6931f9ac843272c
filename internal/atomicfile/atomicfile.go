// Package atomicfile writes files atomically.
package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
)

// Write writes a temporary file and renames it, so that readers see the old or the new
// contents. The file has mode 0600.
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
		_ = os.Remove(f.Name()) // the first error is returned
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

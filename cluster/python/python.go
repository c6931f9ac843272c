package python

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

//go:embed tfcluster/*.py tfcluster/*/*.py tfcluster/*/*/*/*.py
var sources embed.FS

// TensorFlowOnSpark returns a folder with the package tensorflowonspark, whose modules are those of tfcluster.tfos.
func TensorFlowOnSpark() fs.FS {
	site, err := fs.Sub(sources, "tfcluster/tfos/site")
	if err != nil {
		panic(err) // the files are in this program
	}
	return site
}

// Extract writes the embedded package below cacheDir, into a folder that is named by the content, and returns that
// folder for PYTHONPATH. It writes to another folder and renames it, so that processes may call Extract at the same
// time. It does not change a folder that exists.
func Extract(cacheDir string) (dir string, err error) {
	dir = Place(cacheDir)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		return "", fmt.Errorf("extract the Python package tfcluster: %w", err)
	}
	aside, err := os.MkdirTemp(cacheDir, ".python-")
	if err != nil {
		return "", fmt.Errorf("extract the Python package tfcluster: %w", err)
	}
	defer os.RemoveAll(aside)
	if err := os.CopyFS(aside, sources); err != nil {
		return "", fmt.Errorf("extract the Python package tfcluster: %w", err)
	}
	if err := os.Rename(aside, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, statErr := os.Stat(dir); statErr != nil {
			return "", fmt.Errorf("extract the Python package tfcluster: %w", err)
		}
	}
	return dir, nil
}

// Place returns the folder of Extract, whether it exists or not.
func Place(cacheDir string) string {
	return filepath.Join(cacheDir, "python-"+contentDigest())
}

// contentDigest returns a digest of the names and the content of the embedded files. It is computed once, because an
// agent needs it several times while it starts.
var contentDigest = sync.OnceValue(func() string {
	sum := sha256.New()
	err := fs.WalkDir(sources, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := sources.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s\x00%d\x00%s", path, len(content), content)
		return nil
	})
	if err != nil {
		panic(err) // the files are in this program
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
})

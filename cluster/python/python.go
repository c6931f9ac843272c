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

//go:embed tfcluster/*.py
var sources embed.FS

// Extract puts the embedded package under cacheDir, in a folder named by its
// content, and returns that folder: what belongs on PYTHONPATH. It is written
// aside and renamed, so that processes may call it at the same time, and what
// is there already is used as it is.
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

// Place is the folder that Extract returns, whether it is there or not.
func Place(cacheDir string) string {
	return filepath.Join(cacheDir, "python-"+contentDigest())
}

// contentDigest names the embedded files and their content. An agent asks for it several
// times while it starts.
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
		panic(err) // they are in this program
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
})

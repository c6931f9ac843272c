package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tfcluster/tfcluster/internal/atomicfile"
)

// trustFile is the file of the state folder with the configuration files that the user trusts: the SHA-256 of each by
// its path.
const trustFile = "trusted.json"

// Trusts reports whether the user trusts a file with this text.
func Trusts(path string, text []byte) bool {
	trusted, err := readTrust()
	return err == nil && trusted[path] == digest(text)
}

// Trust records that the user trusts a file with this text, until it changes. Without a text it is not trusted any
// more. Files that do not exist any more are forgotten.
func Trust(path string, text []byte) error {
	trusted, err := readTrust()
	if err != nil {
		return err
	}
	for known := range trusted {
		if _, err := os.Lstat(known); errors.Is(err, fs.ErrNotExist) {
			delete(trusted, known)
		}
	}
	delete(trusted, path)
	if text != nil {
		trusted[path] = digest(text)
	}
	b, err := json.MarshalIndent(trusted, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the trusted files: %w", err)
	}
	home, err := Home()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("create the state folder: %w; set TFCLUSTER_HOME to a writable folder", err)
	}
	return atomicfile.Write(filepath.Join(home, trustFile), b)
}

func readTrust() (map[string]string, error) {
	home, err := Home()
	if err != nil {
		return nil, err
	}
	trusted := map[string]string{}
	b, err := os.ReadFile(filepath.Join(home, trustFile))
	if errors.Is(err, fs.ErrNotExist) {
		return trusted, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &trusted)
	}
	if err != nil {
		return nil, fmt.Errorf("the record of trusted files cannot be read: %w; remove %s", err,
			filepath.Join(home, trustFile))
	}
	return trusted, nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

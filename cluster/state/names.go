package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/internal/atomicfile"
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// Files of the state folder with the last number of a name without --name, by backend.
const (
	namesFile = ".names.json"
	namesLock = ".names.lock"
)

// NextNumber returns the number of the next cluster of a backend that is reserved without a name: none before had it,
// so a script that asks for the outcome of yarn-17 is not told that of another job.
func NextNumber(ctx context.Context, backend string) (int, error) {
	home, err := Home()
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return 0, fmt.Errorf("create the state folder: %w; set TFCLUSTER_HOME to a writable folder", err)
	}
	lock, err := lockNames(ctx, filepath.Join(home, namesLock))
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	last := map[string]int{}
	b, err := os.ReadFile(filepath.Join(home, namesFile))
	if err == nil {
		err = json.Unmarshal(b, &last)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("the numbers of clusters cannot be read: %w; remove %s", err, filepath.Join(home, namesFile))
	}
	last[backend] = max(last[backend], highestNumber(backend)) + 1
	if b, err = json.Marshal(last); err != nil {
		return 0, fmt.Errorf("encode the numbers of clusters: %w", err)
	}
	return last[backend], atomicfile.Write(filepath.Join(home, namesFile), b)
}

// lockNames waits for the lock of the numbers, which is held for moments.
func lockNames(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the numbers of clusters: %w", err)
	}
	for {
		err := lockfile.Try(f, lockfile.Exclusive)
		if err == nil {
			return f, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock the numbers of clusters in %s: %w", path, err), f.Close())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// highestNumber returns the highest number of a cluster of a backend that has a state or a record; 0 if there is none.
func highestNumber(backend string) int {
	highest := 0
	note := func(name string) {
		digits, ok := strings.CutPrefix(name, backend+"-")
		if n, err := strconv.Atoi(digits); ok && err == nil {
			highest = max(highest, n)
		}
	}
	records, _ := History() // without them the folders decide
	for _, p := range records {
		note(p.Name)
	}
	if home, err := Home(); err == nil {
		entries, _ := os.ReadDir(home)
		for _, e := range entries {
			note(e.Name())
		}
	}
	return highest
}

package ship

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// touch records a use.
func touch(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now) // if this fails, it is removed earlier than others
}

// cached is an item of a cache that may be removed.
type cached struct {
	path  string
	bytes int64
	used  time.Time
}

// surplus returns the items that exceed the limit of most bytes, least recently used first.
func surplus(all []cached, most int64) []cached {
	slices.SortFunc(all, func(a, b cached) int { return b.used.Compare(a.used) })
	for i, c := range all {
		if most -= c.bytes; most < 0 {
			slices.Reverse(all[i:])
			return all[i:]
		}
	}
	return nil
}

// sweepPacked removes the least recently used packed environments, except the one named now.
// Drivers that serve a removed one have it open. The caller holds the lock of the cache.
func sweepPacked(dir, now string, most int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	var all []cached
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil:
		case digestName().MatchString(e.Name()) && e.Name() == now:
			most -= info.Size()
		case digestName().MatchString(e.Name()):
			all = append(all, cached{filepath.Join(dir, e.Name()), info.Size(), info.ModTime()})
		case info.ModTime().Before(time.Now().Add(-24*time.Hour)) && e.Name() != "lock" && filepath.Ext(e.Name()) != ".json":
			os.Remove(filepath.Join(dir, e.Name())) // left by a driver that was killed
		}
	}
	for _, c := range surplus(all, most) {
		os.Remove(c.path)
	}
}

// treeBytes returns the approximate size of a folder on disk.
func treeBytes(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // unreadable entries do not count
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

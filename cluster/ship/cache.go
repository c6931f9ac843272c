package ship

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// touch notes a use.
func touch(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now) // at worst it goes earlier than others
}

// cached is one thing that may go.
type cached struct {
	path  string
	bytes int64
	used  time.Time
}

// surplus are those that are too many beside what is kept, the longest unused first.
func surplus(all []cached, most int64) []cached {
	slices.SortFunc(all, func(a, b cached) int { return b.used.Compare(a.used) })
	for i, c := range all {
		if most -= c.bytes; most < 0 {
			rest := slices.Clone(all[i:])
			slices.Reverse(rest)
			return rest
		}
	}
	return nil
}

// sweepPacked removes packed environments that were used the longest ago, but the one
// that is used now, and what names those that are gone. Who serves one has it open. The
// caller holds the cache's lock.
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
			os.Remove(filepath.Join(dir, e.Name())) // of a driver that was killed
		}
	}
	for _, c := range surplus(all, most) {
		os.Remove(c.path)
	}
}

// treeBytes is what a folder takes on disk, roughly.
func treeBytes(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // what cannot be seen does not count
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

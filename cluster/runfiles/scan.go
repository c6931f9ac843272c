package runfiles

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"
)

// stamp tells versions of a file apart.
type stamp struct {
	size, modified int64
	inode          uint64
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = st.Ino
	}
	return s
}

// quiet is a version of a file and since when it has been seen.
type quiet struct {
	stamp
	since time.Time
}

// settled is how long a file that nothing says to be complete must not have changed
// before it is sent.
const settled = 500 * time.Millisecond

// look finds the files that arrive whole, and which of them have changed when.
// complete is false if something could not be read: then nothing counts as removed.
func (s *Sender) look(now time.Time) (found map[string]quiet, complete bool) {
	found, complete = map[string]quiet{}, true
	if info, err := s.root.Lstat(s.run); err != nil || !info.IsDir() {
		return found, false // the whole folder is gone: that is nobody's wish
	}
	_ = fs.WalkDir(s.root.FS(), s.run, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			complete = complete && errors.Is(err, fs.ErrNotExist)
			return nil
		}
		if !entry.Type().IsRegular() || Grows(name) || passing().MatchString(name) || !utf8.ValidString(name) || len(name) > maxPath {
			return nil // a link or a device is not followed; a message cannot hold such a name
		}
		info, err := entry.Info()
		if err != nil {
			return nil // gone meanwhile
		}
		version := quiet{stampOf(info), now}
		if before, ok := s.seen[name]; ok && before.stamp == version.stamp {
			version.since = before.since
		}
		found[name] = version
		return nil
	})
	return found, complete
}

// due are the files to be sent now, in the order in which they get their names: those
// that have not changed for a while, and those that a checkpoint's state file, which
// TensorFlow writes last, says to be complete. At the end everything is.
func (s *Sender) due(found map[string]quiet, now time.Time, end bool) []string {
	ready := map[string]bool{}
	for name, version := range found {
		if s.sent[name] == version.stamp {
			continue
		}
		if end || now.Sub(version.since) >= settled {
			ready[name] = true
		}
		if !NamesOthers(name) {
			continue
		}
		state, err := s.root.ReadFile(name)
		if err != nil {
			continue
		}
		prefixes := named(name, state)
		ready[name] = ready[name] || len(prefixes) > 0
		for other, version := range found {
			if s.sent[other] != version.stamp && slices.ContainsFunc(prefixes, func(p string) bool { return ofCheckpoint(other, p) }) {
				ready[other] = true
			}
		}
	}
	names := make([]string, 0, len(ready))
	for name := range ready {
		names = append(names, name)
	}
	slices.SortFunc(names, ByRank)
	return names
}

// removed are the files sent, or fetched, earlier that are there no more, those that
// name others first. What a state file still names stays until it does not: it is
// removed here before it is removed from that file.
func (s *Sender) removed(found map[string]quiet) []string {
	var names, inUse []string
	for name := range found {
		if !NamesOthers(name) {
			continue
		}
		if state, err := s.root.ReadFile(name); err == nil {
			inUse = append(inUse, named(name, state)...)
		}
	}
	for name := range s.sent {
		_, here := found[name]
		if !here && !slices.ContainsFunc(inUse, func(p string) bool { return ofCheckpoint(name, p) }) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return ByRank(b, a) })
	return names
}

// open opens a file of the run and says which version it is.
func (s *Sender) open(name string) (*os.File, stamp, error) {
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp{}, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a plain file")}
	}
	if err != nil {
		f.Close()
		return nil, stamp{}, err
	}
	return f, stampOf(info), nil
}

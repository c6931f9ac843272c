package runfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"
)

// stamp identifies a version of a file.
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

// seenVersion is a version of a file and the time it was first seen.
type seenVersion struct {
	stamp
	since  time.Time
	unsent time.Time // since when the file has had versions of which none was sent
}

// settled is how long a file must be unchanged before it is sent, unless a state file lists it
// as complete.
const settled = 500 * time.Millisecond

// scan finds the files that are not append-only, and since when each is unchanged. complete is
// false if a part could not be read: then no file counts as removed.
func (s *Sender) scan(now time.Time) (found map[string]seenVersion, complete bool) {
	found, complete = map[string]seenVersion{}, true
	clear(s.refused)
	if info, err := s.root.Lstat(s.run); err != nil || !info.IsDir() {
		return found, false // a missing folder is an error, not a request to remove all files
	}
	_ = fs.WalkDir(s.root.FS(), s.run, func(name string, entry fs.DirEntry, err error) error {
		if err != nil && !utf8.ValidString(name) { // io/fs reads no such folder
			s.refused[name] = Refusal(name)
			return nil
		}
		if err != nil {
			complete = complete && errors.Is(err, fs.ErrNotExist)
			return nil
		}
		if !entry.Type().IsRegular() || temporaryName().MatchString(name) {
			return nil // links and devices are not followed
		}
		if why := Refusal(name); why != "" { // also of an event file, which is sent elsewhere
			s.refused[name] = why
			return nil
		}
		if IsAppendOnly(name) {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil // removed meanwhile
		}
		version := seenVersion{stampOf(info), now, now}
		before, ok := s.seen[name]
		if ok && before.stamp == version.stamp {
			version.since = before.since
		}
		if ok && s.sent[name] != before.stamp {
			version.unsent = before.unsent
		}
		found[name] = version
		return nil
	})
	return found, complete
}

// maxState is the size of a state file, in bytes, above which a file of that name is none.
const maxState = 1 << 20

// stateFile is a copy of the version of a state file that a scan found.
type stateFile struct {
	fileCopy
	names []string // the checkpoints that it names
}

func closeStates(states map[string]stateFile) {
	for _, c := range states {
		c.Close()
	}
}

// states copies the state files that are not at the driver, as the scan has found them: with the files of the
// checkpoints that they name. A later version may name files that were not found. One that has changed since is left
// out.
func (s *Sender) states(ctx context.Context, found map[string]seenVersion) (map[string]stateFile, error) {
	states := map[string]stateFile{}
	for name, version := range found {
		if !NamesOthers(name) || version.size > maxState || s.sent[name] == version.stamp {
			continue
		}
		f, now, err := s.open(name)
		if err != nil {
			continue // removed meanwhile, or sendOne tells of it
		}
		var c *os.File
		if now == version.stamp {
			c, err = s.duplicate(ctx, f, now.size)
		}
		f.Close()
		if err != nil && !errors.Is(err, errChanged) {
			return states, fmt.Errorf("copy %s: %w", name, err)
		}
		if c == nil {
			continue
		}
		state := stateFile{fileCopy: fileCopy{c, now}}
		states[name] = state
		content, err := io.ReadAll(io.NewSectionReader(c, 0, now.size))
		if err != nil {
			return states, fmt.Errorf("read a copy of %s: %w", name, err)
		}
		state.names = named(name, content)
		states[name] = state
	}
	return states, nil
}

// changedState reports whether a file is a state file that has changed since the scan.
func changedState(name string, version seenVersion, states map[string]stateFile) bool {
	_, copied := states[name]
	return NamesOthers(name) && version.size <= maxState && !copied
}

// due returns the files to send now, in the order in which they are renamed: files that are unchanged for a
// while, and files of checkpoints in a state file, which TensorFlow writes last. With end, all files. The
// files in copied change all the time, or changed in the folder of such a file: copies of them are to be sent.
func (s *Sender) due(found map[string]seenVersion, states map[string]stateFile, now time.Time,
	end bool,
) (names []string, copied map[string]bool) {
	ready := map[string]bool{}
	copied = map[string]bool{}
	busy := map[string]bool{} // folders with files that change all the time
	for name, version := range found {
		if s.sent[name] == version.stamp {
			continue
		}
		switch {
		case end || now.Sub(version.since) >= settled:
			ready[name] = true
		case now.Sub(version.unsent) >= maxUnsent:
			busy[path.Dir(name)] = true
		}
		prefixes := states[name].names
		ready[name] = ready[name] || len(prefixes) > 0
		for other, version := range found {
			if s.sent[other] != version.stamp &&
				slices.ContainsFunc(prefixes, func(p string) bool { return ofCheckpoint(other, p) }) {
				ready[other] = true
			}
		}
	}
	for name, version := range found {
		if !end && changedState(name, version, states) {
			continue
		}
		copied[name] = busy[path.Dir(name)] && !ready[name] && s.sent[name] != version.stamp
		if ready[name] || copied[name] {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, ByRank)
	return names, copied
}

// removed returns the files sent or fetched before that no longer exist, files that refer to
// others first. A checkpoint that a state file refers to, here or at the driver, is kept: programs remove checkpoints
// before they update the state file.
func (s *Sender) removed(found map[string]seenVersion, states map[string]stateFile) []string {
	var names, inUse []string
	for name := range found {
		if !NamesOthers(name) {
			continue
		}
		if state, err := s.root.ReadFile(name); err == nil {
			inUse = append(inUse, named(name, state)...)
		}
		if state, sent := states[name]; sent {
			inUse = append(inUse, state.names...)
		} else {
			inUse = append(inUse, s.named[name]...)
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

// open opens a file of the run and returns its version.
func (s *Sender) open(name string) (*os.File, stamp, error) {
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp{}, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("it is a folder, a link or a device, not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, stamp{}, err
	}
	return f, stampOf(info), nil
}

// stat says which version of a file is there.
func (s *Sender) stat(name string) (stamp, error) {
	info, err := s.root.Lstat(name)
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

package runfiles

import (
	"errors"
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

// due returns the files to send now, in the order in which they are renamed: files that are unchanged for a
// while, and files of checkpoints in a state file, which TensorFlow writes last. With end, all files. The
// files in copied change all the time, or changed in the folder of such a file: copies of them are to be sent.
func (s *Sender) due(found map[string]seenVersion, states map[string]*stateFile, now time.Time,
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
		state := states[name]
		if state == nil { // another file of that name
			continue
		}
		ready[name] = state.whole
		if !state.whole {
			continue
		}
		for other, version := range found {
			if s.sent[other] != version.stamp &&
				slices.ContainsFunc(state.names, func(p string) bool { return ofCheckpoint(other, p) }) {
				ready[other] = true
			}
		}
	}
	for name, version := range found {
		copied[name] = states[name] == nil && busy[path.Dir(name)] && !ready[name] && s.sent[name] != version.stamp
		if ready[name] || copied[name] {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, ByRank)
	return names, copied
}

// removed returns the files sent or fetched before that no longer exist, files that refer to
// others first. A checkpoint that a state file refers to, here or at the driver, is kept: programs remove checkpoints
// before they update the state file. due are the files that are sent now.
func (s *Sender) removed(found map[string]seenVersion, states map[string]*stateFile, due []string) []string {
	var names, inUse []string
	for name := range found {
		if !NamesOthers(name) {
			continue
		}
		inUse = append(inUse, s.namedBy(name)...)
		if state := states[name]; state != nil && slices.Contains(due, name) {
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

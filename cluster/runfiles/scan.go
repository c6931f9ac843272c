package runfiles

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
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
	since  time.Time
	unsent time.Time // since when the file has had versions of which none was sent
}

// settled is how long a file that nothing says to be complete must not have changed
// before it is sent.
const settled = 500 * time.Millisecond

// restless is how long a file that never settles may go unsent. Then a copy of it is sent that was
// taken when the file had not changed for lull.
const (
	restless = 10 * time.Second
	lull     = 100 * time.Millisecond
	lullMost = 2 * time.Second // how long a lull is waited for
)

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
		version := quiet{stampOf(info), now, now}
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

// due are the files to be sent now, in the order in which they get their names: those
// that have not changed for a while, and those that a checkpoint's state file, which
// TensorFlow writes last, says to be complete. At the end everything is. Of those in copied, which
// never settle, a copy is to be sent.
func (s *Sender) due(found map[string]quiet, now time.Time, end bool) (names []string, copied map[string]bool) {
	ready := map[string]bool{}
	copied = map[string]bool{}
	for name, version := range found {
		if s.sent[name] == version.stamp {
			continue
		}
		switch {
		case end || now.Sub(version.since) >= settled:
			ready[name] = true
		case now.Sub(version.unsent) >= restless:
			ready[name], copied[name] = true, true
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
	for name := range ready {
		names = append(names, name)
	}
	slices.SortFunc(names, ByRank)
	return names, copied
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

// copyOf copies a file that changes all the time into a file without a name, and says which version
// it is. It fails with errChanged where the file does not rest for long enough.
func (s *Sender) copyOf(name string) (*os.File, stamp, error) {
	for end := time.Now().Add(lullMost); time.Now().Before(end); {
		before, err := s.stat(name)
		if err != nil {
			return nil, stamp{}, err
		}
		time.Sleep(lull)
		f, version, err := s.open(name)
		if err != nil {
			return nil, stamp{}, err
		}
		if version != before {
			f.Close()
			continue
		}
		aside, err := s.duplicate(f, version.size)
		f.Close()
		if err != nil {
			return nil, stamp{}, err
		}
		if after, err := s.stat(name); err == nil && after == version {
			return aside, version, nil
		}
		aside.Close()
	}
	return nil, stamp{}, errChanged
}

// duplicate copies what is open into a file without a name on the same disk.
func (s *Sender) duplicate(f *os.File, size int64) (*os.File, error) {
	aside, err := os.OpenFile(s.root.Name(), unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err != nil {
		if aside, err = os.CreateTemp("", "tfcluster-"); err != nil { // a file system without such files
			return nil, err
		}
		_ = os.Remove(aside.Name()) // it is only read by who has it open
	}
	if _, err = io.CopyN(aside, f, size); err == nil {
		_, err = aside.Seek(0, io.SeekStart)
	}
	if err != nil {
		aside.Close()
		return nil, errors.Join(errChanged, err)
	}
	return aside, nil
}

// stat says which version of a file is there.
func (s *Sender) stat(name string) (stamp, error) {
	info, err := s.root.Lstat(name)
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

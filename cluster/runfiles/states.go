package runfiles

import (
	"io"
	"maps"
	"slices"
	"strings"
)

// maxState is the size of a state file, in bytes, above which a file of that name is none.
const maxState = 1 << 20

// stateFile is a version of TensorFlow's state file of a checkpoint folder. It is sent from memory: by the time that
// the files of its checkpoints are there, the program may have replaced it by one that names others.
type stateFile struct {
	content []byte
	version stamp
	names   []string // the checkpoints that it names
	whole   bool     // their files were found with it
}

// readState returns a state file; nil if there is none of that name that names checkpoints.
func (s *Sender) readState(name string) *stateFile {
	f, version, err := s.open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	if version.size > maxState {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil || int64(len(content)) != version.size {
		return nil
	}
	if names := named(name, content); len(names) > 0 {
		return &stateFile{content: content, version: version, names: names}
	}
	return nil
}

// namedBy returns the checkpoints that a state file names now.
func (s *Sender) namedBy(name string) []string {
	if state := s.readState(name); state != nil {
		return state.names
	}
	return nil
}

// statesBefore returns the state files that the last scan found, as they are before the next one: the files that they
// name exist then, however long the scan takes and however often the program saves.
func (s *Sender) statesBefore() map[string]*stateFile {
	states := map[string]*stateFile{}
	for name := range s.seen {
		if NamesOthers(name) {
			states[name] = s.readState(name)
		}
	}
	return states
}

// states returns the state files among the files found that the driver has not, each in its newest version whose
// checkpoints were found, too; where no version is whole, in its newest. before are those of statesBefore. With end no
// program writes any more, and a state file whose checkpoints are of another form is sent as it is, unless the driver
// has a whole one.
func (s *Sender) states(found map[string]seenVersion, before map[string]*stateFile, end bool) map[string]*stateFile {
	states := map[string]*stateFile{}
	for name, version := range found {
		if !NamesOthers(name) || s.sent[name] == version.stamp {
			continue
		}
		state := s.readState(name)
		if state == nil {
			continue
		}
		state.whole = s.complete(state, found)
		if old := before[name]; !state.whole && old != nil && s.sent[name] != old.version && s.complete(old, found) {
			old.whole, state = true, old
		}
		state.whole = state.whole || end && len(s.named[name]) == 0
		states[name] = state
	}
	return states
}

// complete reports whether the checkpoints that a state file names were found, or are at the driver.
func (s *Sender) complete(state *stateFile, found map[string]seenVersion) bool {
	names := slices.AppendSeq(slices.Collect(maps.Keys(found)), maps.Keys(s.sent))
	return !slices.ContainsFunc(state.names, func(prefix string) bool { return !isComplete(prefix, names) })
}

// isComplete reports whether a checkpoint is among files: with its index, which TensorFlow writes last and removes
// first, or in a form that has none.
func isComplete(prefix string, files []string) bool {
	some := false
	for _, name := range files {
		if name == prefix+".index" {
			return true
		}
		if ofCheckpoint(name, prefix) {
			return slices.Contains(files, prefix+".index")
		}
		some = some || strings.HasPrefix(name, prefix+".")
	}
	return some
}

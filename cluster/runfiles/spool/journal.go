package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
)

// journal is the state that a later driver needs: the remote files, and the files to remove
// remotely.
type journal struct {
	Known map[string]entry `json:"known"`
	Gone  []string         `json:"gone,omitempty"`
}

// loadJournal reads the state of the last driver. Files that are not in it are uploaded again.
func (s *Spool) loadJournal() error {
	s.unstage() // left from a driver that died during an upload
	if err := s.root.RemoveAll(fetchName); err != nil {
		return err
	}
	b, err := s.root.ReadFile(journalName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var j journal
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	if err != nil {
		return fmt.Errorf("%s, which lists the files that were uploaded before, cannot be read: %w; remove it, "+
			"and all files are uploaded again", filepath.Join(s.folder, journalName), err)
	}
	for name, e := range j.Known {
		if _, err := s.root.Lstat(name); err != nil {
			e.RemoteOnly = true
		}
		s.known[name] = e
	}
	for _, name := range j.Gone {
		s.gone[name] = true
	}
	return nil
}

// save writes the journal if it has changed.
func (s *Spool) save() error {
	s.mu.Lock()
	if !s.changed {
		s.mu.Unlock()
		return nil
	}
	s.changed = false
	b, err := json.Marshal(journal{Known: s.known, Gone: slices.Collect(maps.Keys(s.gone))})
	s.mu.Unlock()
	if err == nil {
		err = s.root.WriteFile(journalName+".new", b, 0o600)
	}
	if err == nil {
		err = s.root.Rename(journalName+".new", journalName)
	}
	if err != nil {
		s.mu.Lock()
		s.changed = true // the next save writes it
		s.mu.Unlock()
		return fmt.Errorf("save which files have been uploaded to HDFS: %w", err)
	}
	return nil
}

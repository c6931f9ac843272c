package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// journal is what a later driver must know: what lies elsewhere already, and what is
// to be removed there.
type journal struct {
	Known map[string]entry `json:"known"`
	Gone  []string         `json:"gone,omitempty"`
}

// recall reads what the last driver noted. What it did not note is carried again.
func (s *Spool) recall() error {
	s.unstage() // what a driver that died was about to send, or to bring
	if err := s.root.RemoveAll(bringName); err != nil {
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
		return fmt.Errorf("read what was carried over so far: %w", err)
	}
	for name, e := range j.Known {
		if _, err := s.root.Lstat(name); err != nil {
			e.Away = true
		}
		s.known[name] = e
	}
	for _, name := range j.Gone {
		s.gone[name] = true
	}
	return nil
}

// save writes the journal where something has changed.
func (s *Spool) save() error {
	s.mu.Lock()
	if !s.changed {
		s.mu.Unlock()
		return nil
	}
	s.changed = false
	j := journal{Known: s.known}
	for name := range s.gone {
		j.Gone = append(j.Gone, name)
	}
	b, err := json.Marshal(j)
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
		return fmt.Errorf("note what was carried over: %w", err)
	}
	return nil
}

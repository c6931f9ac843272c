package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// Load loads the segments that an earlier driver's store wrote for a run.
func (s *Store) Load(run int32) error {
	root := filepath.Join(rundir.Dir(s.dir, run), rundir.Lines)
	tasks, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, t := range tasks {
		task, ok := taskOfFolder(t.Name())
		if !ok {
			continue
		}
		segments, err := s.findSegments(filepath.Join(root, t.Name()))
		if err != nil {
			return err
		}
		if err := s.adopt(run, task, segments); err != nil {
			return err
		}
	}
	return nil
}

// adopt adds a stream with the given segments, unless the task already has lines.
func (s *Store) adopt(run int32, task string, segments []segment) error {
	if len(segments) == 0 {
		return nil
	}
	lost, err := s.droppedBefore(segments[0], task)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(run, task)
	if len(st.segments) > 0 || st.total > 0 {
		return nil
	}
	last := segments[len(segments)-1]
	st.segments, st.lost, st.total = segments, lost, last.first+last.lines
	for _, g := range segments {
		s.bytes += g.bytes
	}
	return nil
}

// taskOfFolder returns the task whose lines are in a folder of that name.
func taskOfFolder(name string) (task string, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return "", false
	}
	return name[:i] + ":" + name[i+1:], true
}

// findSegments returns the segments in a folder, oldest first. It reads only the last one: the
// line count of another one follows from the next one's first line.
func (s *Store) findSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var segments []segment
	for _, e := range entries { // sorted by name
		g := segment{path: filepath.Join(dir, e.Name())}
		if _, err := fmt.Sscanf(e.Name(), "%d.log", &g.first); err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		g.bytes = info.Size()
		if n := len(segments); n > 0 {
			segments[n-1].lines = g.first - segments[n-1].first
		}
		segments = append(segments, g)
	}
	if len(segments) == 0 {
		return nil, nil
	}
	last := &segments[len(segments)-1]
	b, err := s.read(last.path)
	if err != nil {
		return nil, err
	}
	last.lines, last.bytes = countRows(b)
	return segments, nil
}

// droppedBefore returns how many lines before a task's first segment the quota dropped. Lines
// before it may also be missing because they could not be written: then the segment begins with
// a gap.
func (s *Store) droppedBefore(first segment, task string) (uint64, error) {
	if first.first == 0 {
		return 0, nil
	}
	b, err := s.read(first.path)
	if err != nil {
		return 0, err
	}
	row, _, _ := bytes.Cut(b, []byte{'\n'})
	if g, ok := parseGap(row, task); ok {
		return first.first - min(first.first, g.Lines), nil
	}
	return first.first, nil
}

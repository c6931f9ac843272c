package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Found is a file found by Find.
type Found struct {
	URI  string
	Info fs.FileInfo
}

// Find returns the files that a name selects, sorted by name: the file itself; all files below
// a folder, except names that begin with "." or "_"; or the matches of a pattern (*, ?, [], **
// for folders at any depth). If there are none, the error wraps fs.ErrNotExist.
func (f *FS) Find(ctx context.Context, name string) ([]Found, error) {
	at, err := f.resolve(name)
	if err != nil {
		return nil, err
	}
	base, pattern := splitPattern(strings.Split(strings.TrimPrefix(at.path, "/"), "/"))
	root := strings.TrimSuffix(at.uri, at.path) // hdfs://authority
	start := root + "/" + strings.Join(base, "/")
	info, err := f.Stat(ctx, start)
	if err != nil {
		return nil, err
	}
	s := search{fs: f, ctx: ctx, pattern: pattern}
	switch {
	case !info.IsDir() && len(pattern) == 0:
		return []Found{{start, info}}, nil
	case info.IsDir():
		if err := s.below(start, nil); err != nil {
			return nil, err
		}
	}
	if len(s.found) == 0 {
		return nil, fmt.Errorf("no file matches %s: %w", at.uri, fs.ErrNotExist)
	}
	slices.SortFunc(s.found, func(a, b Found) int { return strings.Compare(a.URI, b.URI) })
	return s.found, nil
}

// splitPattern returns the folder where a search begins, and the pattern below it.
func splitPattern(parts []string) (base, pattern []string) {
	i := slices.IndexFunc(parts, func(p string) bool { return strings.ContainsAny(p, "*?[") })
	if i < 0 {
		return parts, nil
	}
	return parts[:i], parts[i:]
}

// search is the state of one Find.
type search struct {
	fs      *FS
	ctx     context.Context // of the whole search
	pattern []string        // empty: everything that is not hidden
	found   []Found
}

func (s *search) below(folder string, parts []string) error {
	infos, err := s.fs.List(s.ctx, folder)
	if errors.Is(err, fs.ErrNotExist) && len(parts) > 0 {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	for _, info := range infos {
		name := strings.TrimSuffix(folder, "/") + "/" + info.Name()
		at := append(slices.Clip(parts), info.Name())
		hidden := strings.HasPrefix(info.Name(), ".") || strings.HasPrefix(info.Name(), "_")
		switch {
		case len(s.pattern) == 0 && hidden:
		case info.IsDir() && s.enters(at):
			if err := s.below(name, at); err != nil {
				return err
			}
		case !info.IsDir() && (len(s.pattern) == 0 || match(s.pattern, at)):
			s.found = append(s.found, Found{name, info})
		}
	}
	return nil
}

// enters reports whether a folder may contain matches.
func (s *search) enters(at []string) bool {
	if len(s.pattern) == 0 {
		return true
	}
	i := slices.Index(s.pattern, "**")
	if i < 0 {
		return len(at) < len(s.pattern) && match(s.pattern[:len(at)], at)
	}
	return len(at) > i && match(s.pattern[:i+1], at) || len(at) <= i && match(s.pattern[:len(at)], at)
}

// match reports whether a pattern matches a path, part by part. As in a shell, only a pattern
// that begins with a dot matches a name that does.
func match(pattern, parts []string) bool {
	if len(pattern) == 0 {
		return len(parts) == 0
	}
	if pattern[0] == "**" {
		return match(pattern[1:], parts) || len(parts) > 0 && !strings.HasPrefix(parts[0], ".") && match(pattern, parts[1:])
	}
	if len(parts) == 0 || strings.HasPrefix(parts[0], ".") != strings.HasPrefix(pattern[0], ".") {
		return false
	}
	ok, err := path.Match(pattern[0], parts[0])
	return err == nil && ok && match(pattern[1:], parts[1:])
}

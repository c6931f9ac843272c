package events

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Dir reads new scalars of the event files below a folder. It keeps no file open and has no
// goroutine. One goroutine uses it.
type Dir struct {
	root  string
	not   string // files with this suffix are ignored; "": none
	table *crc32.Table
	files map[string]*file // by path below root
}

// file is the position up to which an event file was read.
type file struct {
	offset  int64
	corrupt bool
	told    bool // its error was returned
}

// NewDir returns a Dir for the files below root, which may not exist yet. Files with the suffix
// not are ignored, unless that is "".
func NewDir(root, not string) *Dir {
	return &Dir{root: root, not: not, table: crc32.MakeTable(crc32.Castagnoli), files: map[string]*file{}}
}

// Found is a scalar with its file, relative to the folder.
type Found struct {
	Scalar
	File string
}

// mostAtOnce is the maximum number of bytes that one call reads of a file, to bound its
// duration.
const mostAtOnce = 16 << 20

// Next returns the scalars since the last call. An unreadable file's error is returned once,
// with the scalars of the others; a corrupt file is not read again.
func (d *Dir) Next() ([]Found, error) {
	var paths []string
	_ = filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a folder that vanished or cannot be read holds nothing to show
		}
		if e.Type().IsRegular() && strings.Contains(e.Name(), "tfevents") &&
			(d.not == "" || !strings.HasSuffix(e.Name(), d.not)) {
			paths = append(paths, path)
		}
		return nil
	})
	slices.Sort(paths)
	var found []Found
	var errs []error
	for _, path := range paths {
		rel, err := filepath.Rel(d.root, path)
		if err != nil {
			return found, err
		}
		f := d.files[rel]
		if f == nil {
			f = &file{}
			d.files[rel] = f
		}
		if f.corrupt {
			continue
		}
		of, err := f.read(path, d.table)
		for _, s := range of {
			found = append(found, Found{s, rel})
		}
		f.corrupt = errors.Is(err, ErrCorrupt)
		if err != nil && !f.told {
			errs = append(errs, fmt.Errorf("event file %s: %w", rel, err))
		}
		f.told = err != nil
	}
	return found, errors.Join(errs...)
}

// read returns the file's new scalars.
func (f *file) read(path string, table *crc32.Table) ([]Scalar, error) {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= f.offset {
		return nil, nil //nolint:nilerr // gone, or nothing new
	}
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var found []Scalar
	for start := f.offset; f.offset-start < mostAtOnce; {
		data, next, err := readRecord(r, f.offset, table)
		if errors.Is(err, errPartial) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		f.offset = next
		found = append(found, scalars(data)...)
	}
	return found, nil
}

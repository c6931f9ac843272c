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

// Dir follows the event files below a folder. Its caller asks for what is new as
// often as it likes; it holds no file open in between and starts nothing.
type Dir struct {
	root  string
	not   string // names that end so are left out; "": none
	table *crc32.Table
	files map[string]*file // by path below root
}

// file is how far an event file was read.
type file struct {
	offset  int64
	corrupt bool
	told    bool // that it cannot be read
}

// NewDir follows the files below root, which need not exist yet. Files whose names end with not
// are left out, unless that is "".
func NewDir(root, not string) *Dir {
	return &Dir{root: root, not: not, table: crc32.MakeTable(crc32.Castagnoli), files: map[string]*file{}}
}

// Found is a scalar and the file it stood in, relative to the folder.
type Found struct {
	Scalar
	File string
}

// mostAtOnce bounds what one call reads of a file, so that a huge one does not hold
// its caller up.
const mostAtOnce = 16 << 20

// Next returns the scalars that were written since the last call. A file that cannot be
// read is told once, with what the others had; a corrupt one is left alone from then on.
func (d *Dir) Next() ([]Found, error) {
	var paths []string
	err := filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a folder that vanished or cannot be read holds nothing to show
		}
		if e.Type().IsRegular() && strings.Contains(e.Name(), "tfevents") && (d.not == "" || !strings.HasSuffix(e.Name(), d.not)) {
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for event files: %w", err)
	}
	slices.Sort(paths)
	var found []Found
	var errs []error
	for _, path := range paths {
		rel, err := filepath.Rel(d.root, path)
		if err != nil {
			return found, fmt.Errorf("look for event files: %w", err)
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

// read returns what was added to the file.
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

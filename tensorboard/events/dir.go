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
	root   string
	table  *crc32.Table
	offset map[string]int64
	broken map[string]bool
}

// NewDir follows the files below root, which need not exist yet.
func NewDir(root string) *Dir {
	return &Dir{root: root, table: crc32.MakeTable(crc32.Castagnoli), offset: map[string]int64{}, broken: map[string]bool{}}
}

// Found is a scalar and the file it stood in, relative to the folder.
type Found struct {
	Scalar
	File string
}

// mostAtOnce bounds what one call reads of a file, so that a huge one does not hold
// its caller up.
const mostAtOnce = 16 << 20

// Next returns the scalars that were written since the last call. A corrupt file is
// told once, with what the others had, and left alone from then on.
func (d *Dir) Next() ([]Found, error) {
	var paths []string
	err := filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a folder that vanished or cannot be read holds nothing to show
		}
		if e.Type().IsRegular() && strings.Contains(e.Name(), "tfevents") {
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
		if err != nil || d.broken[rel] {
			continue
		}
		of, err := d.read(path, rel)
		found = append(found, of...)
		if err != nil {
			d.broken[rel] = true
			errs = append(errs, fmt.Errorf("event file %s: %w", rel, err))
		}
	}
	return found, errors.Join(errs...)
}

func (d *Dir) read(path, rel string) ([]Found, error) {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= d.offset[rel] {
		return nil, nil //nolint:nilerr // gone, or nothing new
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []Found
	for start := d.offset[rel]; d.offset[rel]-start < mostAtOnce; {
		data, next, err := readRecord(f, d.offset[rel], d.table)
		if errors.Is(err, errPartial) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		d.offset[rel] = next
		for _, s := range scalars(data) {
			found = append(found, Found{s, rel})
		}
	}
	return found, nil
}

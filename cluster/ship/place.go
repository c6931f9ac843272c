package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Place puts a content under its name into a task's folder: a file is copied, an
// archive unpacked.
func Place(ctx context.Context, content string, s *clusterpb.Shipped, dir string) error {
	if err := CheckName(s.GetName()); err != nil {
		return err
	}
	path := filepath.Join(dir, filepath.FromSlash(s.GetName()))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	from, err := os.Open(content)
	if err != nil {
		return err
	}
	defer from.Close()
	if s.GetForm() != "" {
		return Unpack(ctx, from, s.GetForm(), path, nil)
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(s.GetMode()).Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// CheckName says whether something may be called so in a task's working directory.
func CheckName(name string) error {
	if clean, err := inside(name); err != nil || clean == "." || clean != name {
		return fmt.Errorf("%q is no name below the working directory", name)
	}
	return nil
}

// CheckNames says whether things may lie beside one another: none is another's, nor
// below another.
func CheckNames(names []string) error {
	sorted := slices.Clone(names)
	slices.SortFunc(sorted, func(a, b string) int { return strings.Compare(a+"/", b+"/") })
	for i, name := range sorted {
		if err := CheckName(name); err != nil {
			return err
		}
		if i > 0 && strings.HasPrefix(name+"/", sorted[i-1]+"/") {
			if name == sorted[i-1] {
				return fmt.Errorf("two are called %s", name)
			}
			return fmt.Errorf("%s would lie in %s", name, sorted[i-1])
		}
	}
	return nil
}

// NameOf is what something is called where no name is given: its own, and for an archive
// to be unpacked its own without the ending.
func NameOf(path string, unpack bool) (string, error) {
	name := filepath.Base(path)
	if !unpack {
		return name, nil
	}
	_, stem, ok := formOf(name)
	if !ok {
		return "", errors.New("#archive is for .zip, .tar, .tar.gz and .tgz")
	}
	return stem, nil
}

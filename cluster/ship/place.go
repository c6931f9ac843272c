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

// Place copies a file, or unpacks an archive, into a task's folder under its name.
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

// CheckName returns an error unless name can be used in a task's working directory.
func CheckName(name string) error {
	if clean, err := inside(name); err != nil || clean == "." || clean != name {
		return fmt.Errorf("%q is not a path below the working directory", name)
	}
	return nil
}

// CheckNames returns an error if two names are equal, or one is below another.
func CheckNames(names []string) error {
	sorted := slices.Clone(names)
	slices.SortFunc(sorted, func(a, b string) int { return strings.Compare(a+"/", b+"/") })
	for i, name := range sorted {
		if err := CheckName(name); err != nil {
			return err
		}
		if i > 0 && strings.HasPrefix(name+"/", sorted[i-1]+"/") {
			if name == sorted[i-1] {
				return fmt.Errorf("two files have the name %s in the working directory", name)
			}
			return fmt.Errorf("%s would be inside %s, which is a file or folder of its own", name, sorted[i-1])
		}
	}
	return nil
}

// NameOf returns the default name of a file in the working directory: its base name, and for an
// archive to unpack, the base name without its extension.
func NameOf(path string, unpack bool) (string, error) {
	name := filepath.Base(path)
	if !unpack {
		return name, nil
	}
	_, stem, ok := formOf(name)
	if !ok {
		return "", errors.New("#archive unpacks .zip, .tar, .tar.gz and .tgz only: leave it out, or name such a file")
	}
	return stem, nil
}

package hdfs

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
)

// Grow makes a file hold the first size bytes of r. It appends to a file that holds a beginning
// of them, such as a log that is copied repeatedly. If HDFS cannot append, for example because
// a dead writer holds the lease, the file is rewritten. Concurrent calls must not use the same
// name.
func (f *FS) Grow(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	token := rand.Text()
	return f.do(ctx, "extend", name, func(s *session, name string) error {
		grown, err := s.extend(name, r, size)
		if err != nil || grown {
			return err
		}
		return s.replace(name, token, io.NewSectionReader(r, 0, size))
	})
}

// extend appends the missing bytes. It returns false if the file must be rewritten.
func (s *session) extend(name string, r io.ReaderAt, size int64) (bool, error) {
	info, err := s.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && info.Size() > size) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if info.IsDir() {
		return false, localError{errors.New("the name is that of a folder, not of a file")}
	}
	if info.Size() == size {
		return true, nil
	}
	w, err := s.Append(name)
	if err != nil {
		if answered(err) && !errors.Is(err, fs.ErrPermission) {
			return false, nil
		}
		return false, err
	}
	if err := s.fill(w, io.NewSectionReader(r, info.Size(), size-info.Size())); err != nil {
		if class, _, ok := exception(err); ok && class == "AlreadyBeingCreatedException" {
			return false, nil
		}
		return false, err
	}
	// A dead writer may have written more than Stat returned.
	info, err = s.Stat(name)
	return err == nil && info.Size() == size, err
}

package hdfs

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
)

// Grow makes a file hold the first size bytes of r, of which it may hold the beginning
// already, as a log that is copied again and again: what is missing is appended. Where
// HDFS does not append (a writer that died holds the file) the file is written anew.
// Two at once must not grow one file.
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

// extend appends what is missing. It says false where the file has to be written anew.
func (s *session) extend(name string, r io.ReaderAt, size int64) (bool, error) {
	info, err := s.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && info.Size() > size) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if info.IsDir() {
		return false, localError{errors.New("it is a folder")}
	}
	if info.Size() == size {
		return true, nil
	}
	w, err := s.Append(name)
	if err != nil {
		if refused(err) && !errors.Is(err, fs.ErrPermission) {
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
	// A writer that died may have left more than Stat could see.
	info, err = s.Stat(name)
	return err == nil && info.Size() == size, err
}

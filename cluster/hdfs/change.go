package hdfs

import (
	"context"
	"errors"
	"io/fs"
)

// MakeDir makes a folder with its parents. One that exists is as good.
func (f *FS) MakeDir(ctx context.Context, name string) error {
	return f.do(ctx, "make", name, func(s *session, name string) error { return s.MkdirAll(name, 0o755) })
}

// Remove removes a file or a folder with all that is in it. What does not exist is as
// good.
func (f *FS) Remove(ctx context.Context, name string) error {
	return f.do(ctx, "remove", name, func(s *session, name string) error {
		if err := s.RemoveAll(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

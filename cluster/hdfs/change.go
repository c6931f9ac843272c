package hdfs

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// MakeDir makes a folder with its parents, with the permissions that Hadoop's umask
// leaves, or for this user alone. One that exists is as good.
func (f *FS) MakeDir(ctx context.Context, name string) error {
	return f.do(ctx, "make", name, func(s *session, name string) error { return s.folder(name, folderMode&^s.umask) })
}

// MakePrivate makes a folder for this user alone, with its parents. One that exists
// stays as it is.
func (f *FS) MakePrivate(ctx context.Context, name string) error {
	return f.do(ctx, "make", name, func(s *session, name string) error { return s.folder(name, ownMode) })
}

// Touch makes at, in whole seconds, the time of a file's or folder's last change.
func (f *FS) Touch(ctx context.Context, name string, at time.Time) error {
	return f.do(ctx, "touch", name, func(s *session, name string) error {
		return s.Chtimes(name, at, at)
	})
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

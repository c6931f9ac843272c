package hdfs

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// MakeDir creates a folder and its parents. New folders get the permissions that Hadoop's umask
// allows, or none for others if no umask is set. It succeeds if the folder exists.
func (f *FS) MakeDir(ctx context.Context, name string) error {
	return f.do(ctx, "make", name, func(s *session, name string) error { return s.folder(name, folderMode&^s.umask) })
}

// MakePrivate creates a folder that only this user can access, and its parents. It leaves an
// existing folder unchanged.
func (f *FS) MakePrivate(ctx context.Context, name string) error {
	return f.do(ctx, "make", name, func(s *session, name string) error { return s.folder(name, ownMode) })
}

// Touch sets the modification time of a file or folder, in whole seconds.
func (f *FS) Touch(ctx context.Context, name string, at time.Time) error {
	return f.do(ctx, "touch", name, func(s *session, name string) error {
		return s.Chtimes(name, at, at)
	})
}

// Remove removes a file, or a folder with its contents. It succeeds if the name does not exist.
func (f *FS) Remove(ctx context.Context, name string) error {
	return f.do(ctx, "remove", name, func(s *session, name string) error {
		if err := s.RemoveAll(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

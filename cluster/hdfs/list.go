package hdfs

import (
	"context"
	"io/fs"
	"slices"
)

// Stat tells a file's or folder's size and times.
func (f *FS) Stat(ctx context.Context, name string) (info fs.FileInfo, err error) {
	err = f.do(ctx, "look at", name, func(s *session, name string) error {
		info, err = s.Stat(name)
		return err
	})
	return info, err
}

// List gives what is in a folder, sorted by name, without files that are being
// written.
func (f *FS) List(ctx context.Context, name string) (infos []fs.FileInfo, err error) {
	err = f.do(ctx, "list", name, func(s *session, name string) error {
		infos, err = s.ReadDir(name)
		return err
	})
	return slices.DeleteFunc(infos, func(i fs.FileInfo) bool { return isAside(i.Name()) }), err
}

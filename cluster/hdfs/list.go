package hdfs

import (
	"context"
	"io/fs"
	"slices"
)

// Stat returns size and times of a file or folder.
func (f *FS) Stat(ctx context.Context, name string) (info fs.FileInfo, err error) {
	err = f.do(ctx, "stat", name, func(s *session, name string) error {
		info, err = s.Stat(name)
		return err
	})
	return info, err
}

// List returns the contents of a folder, sorted by name, without temporary files of Write.
func (f *FS) List(ctx context.Context, name string) (infos []fs.FileInfo, err error) {
	err = f.do(ctx, "list", name, func(s *session, name string) error {
		infos, err = s.ReadDir(name)
		return err
	})
	return slices.DeleteFunc(infos, func(i fs.FileInfo) bool { return isTemp(i.Name()) }), err
}

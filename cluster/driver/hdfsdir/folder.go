package hdfsdir

import (
	"context"
	"io"
	"io/fs"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/driver"
)

// Folder is a directory on HDFS that implements results.Folder.
type Folder struct{ remote driver.RemoteDir }

// OpenFolder opens a directory with a configuration and as a user; "" means those of the environment.
func OpenFolder(dir, confDir, user string) (*Folder, error) {
	remote, err := OpenAs(dir, confDir, user)
	if err != nil {
		return nil, err
	}
	return &Folder{remote}, nil
}

func (f *Folder) name(below string) string { return strings.TrimRight(f.remote.Dir+"/"+below, "/") }

// List implements results.Folder.
func (f *Folder) List(ctx context.Context, name string) ([]fs.FileInfo, error) {
	return f.remote.Reader.List(ctx, f.name(name))
}

// Open implements results.Folder.
func (f *Folder) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return f.remote.Reader.Open(ctx, f.name(name))
}

// Close implements results.Folder.
func (f *Folder) Close() error { return f.remote.Close.Close() }

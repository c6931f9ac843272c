package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

// copiesAtOnce is how many files of one ctx.local_copy are copied in parallel.
const copiesAtOnce = 4

// copyHDFS copies this task's share of the files of ctx.local_copy("hdfs://…") to the local
// disk and sends the paths.
func (a *Agent) copyHDFS(ctx context.Context, t *task, m controlMessage) {
	reply := map[string]any{"op": "copied", "name": m.Name}
	paths, err := a.localCopies(ctx, m)
	reply["paths"] = paths
	if err != nil {
		reply["error"] = err.Error()
		reply["missing"] = errors.Is(err, fs.ErrNotExist)
	}
	t.sendControl(reply)
}

func (a *Agent) localCopies(ctx context.Context, m controlMessage) ([]string, error) {
	f, err := a.hdfs()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found, err := f.Find(ctx, m.URI)
	if err != nil {
		return nil, err
	}
	if n := len(m.Share); n == 2 && m.Share[1] > 0 {
		var share []hdfs.Found
		for i := max(0, m.Share[0]); i < len(found); i += m.Share[1] {
			share = append(share, found[i])
		}
		found = share
	}
	folder := a.disk.own.copies()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of copies: %w", err)
	}
	paths := make([]string, len(found))
	var lacking int64
	for i, file := range found {
		paths[i] = copyPath(folder, file)
		if _, err := os.Stat(paths[i]); err != nil {
			lacking += file.Info.Size()
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err == nil && lacking > int64(st.Bavail)*st.Bsize {
		return nil, fmt.Errorf("not enough disk space on %s for ctx.local_copy: %d bytes needed, %d free: free space there, "+
			"or read the files in place", a.self.host, lacking, int64(st.Bavail)*st.Bsize)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(copiesAtOnce)
	for i, file := range found {
		g.Go(func() error { return copyOne(ctx, f, file.URI, paths[i]) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return paths, nil
}

// hdfs opens HDFS with the driver's Hadoop configuration, or this host's if there is none.
func (a *Agent) hdfs() (*hdfs.FS, error) {
	conf, err := hadoopconf.FromEnvironment()
	if errors.Is(err, hadoopconf.ErrNone) {
		conf, err = hadoopconf.New(nil), nil // a URI with an authority needs none
	}
	user := ""
	if h := a.cfg.GetHadoop(); h != nil {
		conf, user, err = hadoopconf.New(h.GetProperties()), h.GetUser(), nil
	}
	if err != nil {
		return nil, err
	}
	if user == "" {
		if user, err = hadoopconf.User(); err != nil {
			return nil, err
		}
	}
	return hdfs.New(hdfs.Config{Conf: conf, User: user})
}

// copyPath returns the local path of a version of a file, in a folder of its own so that the
// file keeps its name.
func copyPath(folder string, file hdfs.Found) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", file.URI, file.Info.Size(), file.Info.ModTime().UnixNano()))
	return filepath.Join(folder, hex.EncodeToString(sum[:12]), path.Base(file.URI))
}

// copyOne copies a file to a temporary name and renames it when it is complete.
func copyOne(ctx context.Context, f *hdfs.FS, uri, place string) error {
	if _, err := os.Stat(place); err == nil {
		return nil // copied before
	}
	r, err := f.Open(ctx, uri)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return err
	}
	w, err := os.CreateTemp(filepath.Dir(place), ".part-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if err = errors.Join(err, w.Close()); err == nil {
		err = os.Rename(w.Name(), place)
	}
	if err != nil {
		_ = os.Remove(w.Name()) // the first error is returned
	}
	return err
}

package yarn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// shipped is a file on HDFS as the nodes fetch it, once for each user.
type shipped struct {
	URI  string `json:"uri"`
	Size int64  `json:"size"`
	Time int64  `json:"time"` // of its last change, in milliseconds: the nodes compare it
}

// cacheDir is below the user's home on HDFS.
const cacheDir = ".tfcluster/cache"

// ship puts a program on HDFS under the name of its content, unless it is there.
func ship(ctx context.Context, s site.Site, program string) (shipped, error) {
	f, err := os.Open(program)
	if err != nil {
		return shipped{}, fmt.Errorf("ship this program: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return shipped{}, fmt.Errorf("ship this program: %w", err)
	}
	store, err := site.NewHDFS(s)
	if err != nil {
		return shipped{}, err
	}
	defer store.Close()
	name, info, err := put(ctx, store, hex.EncodeToString(sum.Sum(nil)), size, f)
	if err != nil {
		return shipped{}, fmt.Errorf("ship this program: %w", err)
	}
	uri, err := store.URI(name)
	return shipped{URI: uri, Size: info.Size(), Time: info.ModTime().UnixMilli()}, err
}

// put makes a content lie in the cache, under its SHA-256 in hex.
func put(ctx context.Context, store *hdfs.FS, digest string, size int64, from io.ReadSeeker) (name string, info fs.FileInfo, err error) {
	dir := folderOf(digest)
	name, info, err = find(ctx, store, dir, size)
	if errors.Is(err, fs.ErrNotExist) {
		// Another driver may ship the same now. Each writes a name of its own: a node
		// refuses a file that was replaced after it was asked for.
		name = dir + "/tfcluster-" + rand.Text()
		if err = store.Write(ctx, name, from); err == nil {
			info, err = store.Stat(ctx, name)
		}
	}
	if err != nil {
		return "", nil, err
	}
	// Neither is worth a failure: another driver that ships now does the same.
	_ = store.Touch(ctx, dir, time.Now())
	_ = clean(ctx, store, time.Now())
	return name, info, nil
}

// folderOf is where a content lies.
func folderOf(digest string) string { return cacheDir + "/" + digest[:32] }

// What was shipped is kept for as long as it is used, and a few of the last beyond that.
const (
	cacheAge  = 24 * time.Hour // since it was shipped last
	cacheKept = 4
)

// clean removes what was not shipped for long: of that the least recently used, until
// few are left. Its folder's time says when it was shipped last.
func clean(ctx context.Context, store *hdfs.FS, now time.Time) error {
	infos, err := store.List(ctx, cacheDir)
	if err != nil {
		return err
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, i := range infos[min(cacheKept, len(infos)):] {
		if now.Sub(i.ModTime()) > cacheAge {
			if err := store.Remove(ctx, cacheDir+"/"+i.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// find looks for a whole file below a folder of that content.
func find(ctx context.Context, store *hdfs.FS, dir string, size int64) (string, fs.FileInfo, error) {
	infos, err := store.List(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	for _, i := range infos {
		if !i.IsDir() && i.Size() == size {
			return dir + "/" + i.Name(), i, nil
		}
	}
	return "", nil, fs.ErrNotExist
}

// resource is what a launch context says of it.
func (f shipped) resource() (*yarnpb.LocalResource, error) {
	u, err := url.Parse(f.URI)
	if err != nil {
		return nil, fmt.Errorf("ship %s: %w", f.URI, err)
	}
	at := &yarnpb.URL{Scheme: &u.Scheme, Host: new(u.Hostname()), File: &u.Path}
	if _, port, err := net.SplitHostPort(u.Host); err == nil {
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("ship %s: %w", f.URI, err)
		}
		at.Port = new(int32(n))
	}
	return &yarnpb.LocalResource{
		Resource: at, Size: &f.Size, Timestamp: &f.Time,
		Type: yarnpb.LocalResourceType_FILE.Enum(), Visibility: yarnpb.LocalResourceVisibility_PRIVATE.Enum(),
	}, nil
}

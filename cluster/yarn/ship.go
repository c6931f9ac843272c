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

// cachedFile is a file on HDFS that NodeManagers localize, once per user.
type cachedFile struct {
	URI  string `json:"uri"`
	Size int64  `json:"size"`
	Time int64  `json:"time"` // of its last change, in Unix milliseconds; NodeManagers compare it
}

// cacheDir is the cache's folder below the user's home on HDFS.
const cacheDir = ".tfcluster/cache"

// ship uploads a program to the cache on HDFS, unless it is there.
func ship(ctx context.Context, s site.Site, program string) (cachedFile, error) {
	f, err := os.Open(program)
	if err != nil {
		return cachedFile{}, fmt.Errorf("copy the program tfcluster to HDFS for the containers: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return cachedFile{}, fmt.Errorf("copy the program tfcluster to HDFS for the containers: %w", err)
	}
	store, err := site.NewHDFS(s)
	if err != nil {
		return cachedFile{}, err
	}
	defer store.Close()
	name, info, err := upload(ctx, store, hex.EncodeToString(sum.Sum(nil)), size, f)
	if err != nil {
		return cachedFile{}, fmt.Errorf("copy the program tfcluster to HDFS for the containers: %w", err)
	}
	uri, err := store.URI(name)
	return cachedFile{URI: uri, Size: info.Size(), Time: info.ModTime().UnixMilli()}, err
}

// upload stores an artifact in the cache under its SHA-256 in hex, unless it is there.
func upload(ctx context.Context, store *hdfs.FS, digest string, size int64,
	from io.ReadSeeker,
) (name string, info fs.FileInfo, err error) {
	dir := cacheFolder(digest)
	name, info, err = findCached(ctx, store, dir, size)
	if errors.Is(err, fs.ErrNotExist) {
		// Another driver may upload the same artifact now. Each writes a file with a unique name, since a
		// NodeManager fails if a file was replaced after it was requested.
		name = dir + "/tfcluster-" + rand.Text()
		if err = store.Write(ctx, name, from); err == nil {
			info, err = store.Stat(ctx, name)
		}
	}
	if err != nil {
		return "", nil, err
	}
	// Errors are ignored: the next upload does both again.
	_ = store.Touch(ctx, dir, time.Now())
	_ = cleanCache(ctx, store, time.Now())
	return name, info, nil
}

// cacheFolder returns the folder of an artifact.
func cacheFolder(digest string) string { return cacheDir + "/" + digest[:32] }

// The cache keeps what was used within cacheAge, and the last cacheKept artifacts beyond that.
const (
	cacheAge  = 24 * time.Hour // since its last upload
	cacheKept = 4
)

// cleanCache removes the least recently used artifacts that are older than cacheAge, except cacheKept of
// them. A folder's modification time is the time of the last upload.
func cleanCache(ctx context.Context, store *hdfs.FS, now time.Time) error {
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

// findCached returns the complete file in an artifact's folder, or fs.ErrNotExist.
func findCached(ctx context.Context, store *hdfs.FS, dir string, size int64) (string, fs.FileInfo, error) {
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

// localResource returns the file's entry of a launch context.
func (f cachedFile) localResource() (*yarnpb.LocalResource, error) {
	u, err := url.Parse(f.URI)
	if err != nil {
		return nil, fmt.Errorf("find %s for the containers: %w", f.URI, err)
	}
	at := &yarnpb.URL{Scheme: &u.Scheme, Host: new(u.Hostname()), File: &u.Path}
	if _, port, err := net.SplitHostPort(u.Host); err == nil {
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("find %s for the containers: %w", f.URI, err)
		}
		at.Port = new(int32(n))
	}
	return &yarnpb.LocalResource{
		Resource: at, Size: &f.Size, Timestamp: &f.Time,
		Type: yarnpb.LocalResourceType_FILE.Enum(), Visibility: yarnpb.LocalResourceVisibility_PRIVATE.Enum(),
	}, nil
}

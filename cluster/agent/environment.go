package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/ship"
	"github.com/tfcluster/tfcluster/internal/proc"
)

// fetchTries is how often a fetch is tried while the driver cannot be reached.
const fetchTries = 5

// environmentsIn returns the folder of unpacked environments of this user on this host. It
// outlives agents and clusters.
func environmentsIn() string {
	if dir := os.Getenv("TFCLUSTER_CACHE"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(os.TempDir(), "tfcluster-"+strconv.Itoa(os.Getuid())+"-environments")
}

// environmentFetcher unpacks the environment of a WarmUp on this host.
type environmentFetcher struct {
	environments ship.Environments
	blobs        *blobStore
	python       string // the executor's own; "" if the backend does not know it
	send         func(*clusterpb.AgentMessage)
}

// fetch returns want with the interpreter of its environment, which is kept until the Closer is
// closed.
func (b *environmentFetcher) fetch(ctx context.Context, want *clusterpb.WarmUp) (*clusterpb.WarmUp, io.Closer, error) {
	e := want.GetEnvironment()
	if e == nil {
		return want, io.NopCloser(nil), nil
	}
	if err := prepareCache(b.environments.Dir); err != nil {
		return nil, nil, fmt.Errorf("--venv on %s: %w", b.environments.Host, err)
	}
	fetch := func(ctx context.Context, w io.Writer) error {
		return b.blobs.fetchAgain(ctx, e.GetPacked().GetContent().GetSha256(), w)
	}
	held, err := b.environments.Take(ctx, e, []string{b.python, want.GetPython()}, fetch, func(what string) {
		b.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Fetching{Fetching: &clusterpb.Fetching{What: what}}})
	})
	if err != nil {
		return nil, nil, err
	}
	want = proto.CloneOf(want)
	want.Python = held.Python
	return want, held, nil
}

// prepareCache creates a folder with mode 0700, or checks that nobody but this user can write
// to it: programs are run from there.
func prepareCache(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder for environments: %w; set TFCLUSTER_CACHE on the executors to another folder", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the folder for environments: %w; set TFCLUSTER_CACHE on the executors to another folder",
			err)
	}
	if uid, ok := proc.Owner(dir); !ok || !info.IsDir() || uid != strconv.Itoa(os.Getuid()) ||
		info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf(
			"%s must be a folder that only this user can write to: remove it, or set TFCLUSTER_CACHE on the executors", dir)
	}
	return nil
}

// fetchAgain fetches a blob. It tries again while the driver cannot be reached, unless data has
// been written.
func (s *blobStore) fetchAgain(ctx context.Context, digest string, w io.Writer) error {
	for try := 1; ; try++ {
		c := &countedWriter{w: w}
		err := s.fetch(ctx, digest, c)
		if status.Code(err) != codes.Unavailable || c.n > 0 || try == fetchTries {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

type countedWriter struct {
	w io.Writer
	n int64
}

func (c *countedWriter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.w.Write(p)
}

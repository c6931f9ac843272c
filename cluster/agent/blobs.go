package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// fetchTimeout is how long nothing may come of a blob that is fetched.
const fetchTimeout = time.Minute

// blobStore keeps blobs by their digest; agents of one host share it.
type blobStore struct {
	dir    string
	client clusterpb.CoordinatorClient
}

// path returns the file that holds a blob, fetching it first if it is not here.
// A blob without content is "".
func (s *blobStore) path(ctx context.Context, b *clusterpb.Blob) (string, error) {
	digest := b.GetSha256()
	if digest == "" && len(b.GetData()) == 0 {
		return "", nil
	}
	if digest == "" {
		sum := sha256.Sum256(b.GetData())
		digest = hex.EncodeToString(sum[:])
	}
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf("fetch a blob: %q is no SHA-256", digest)
	}
	path := filepath.Join(s.dir, digest)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	write := func(w io.Writer) error {
		_, err := w.Write(b.GetData())
		return err
	}
	if len(b.GetData()) == 0 {
		write = func(w io.Writer) error { return s.fetch(ctx, digest, w) }
	}
	if err := s.store(path, digest, write); err != nil {
		return "", fmt.Errorf("fetch blob %.12s: %w", digest, err)
	}
	return path, nil
}

// store writes a blob aside, checks it and renames it.
func (s *blobStore) store(path, digest string, write func(io.Writer) error) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, ".fetch-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	sum := sha256.New()
	err = write(io.MultiWriter(f, sum))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got := digestOf(sum); got != digest {
		return fmt.Errorf("its content has SHA-256 %.12s", got)
	}
	return os.Rename(f.Name(), path)
}

func digestOf(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

func (s *blobStore) fetch(ctx context.Context, digest string, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(fetchTimeout, func() { cancel(fmt.Errorf("nothing came for %v", fetchTimeout)) })
	defer silent.Stop()
	stream, err := s.client.Fetch(ctx, &clusterpb.FetchRequest{Sha256: digest})
	if err != nil {
		return err
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
		silent.Reset(fetchTimeout)
		if _, err := w.Write(chunk.GetData()); err != nil {
			return err
		}
	}
}

// empty returns a file without content.
func (s *blobStore) empty() (string, error) {
	sum := sha256.Sum256(nil)
	digest := hex.EncodeToString(sum[:])
	path := filepath.Join(s.dir, digest)
	if err := s.store(path, digest, func(io.Writer) error { return nil }); err != nil {
		return "", fmt.Errorf("keep an empty file: %w", err)
	}
	return path, nil
}

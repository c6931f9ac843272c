package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// fetchTimeout bounds the time between two chunks of a fetched blob.
const fetchTimeout = time.Minute

// blobsKept is how many bytes of unused blobs are kept for the next start.
const blobsKept = 256 << 20

// blobStore stores blobs by their digest; agents of one host share it. An agent holds a shared
// lock on the file of each blob that its tasks use; unlocked blobs may be removed. The folder's
// lock separates taking blobs from removing some.
type blobStore struct {
	dir    string
	client clusterpb.CoordinatorClient
	kept   int64
}

// hold returns the open file of a blob, and fetches it first if it is missing. The blob is kept
// until the file is closed. For a blob without content it returns nil.
func (s *blobStore) hold(ctx context.Context, b *clusterpb.Blob) (*os.File, error) {
	digest := b.GetSha256()
	if digest == "" && len(b.GetData()) == 0 {
		return nil, nil
	}
	if digest == "" {
		sum := sha256.Sum256(b.GetData())
		digest = hex.EncodeToString(sum[:])
	}
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != sha256.Size {
		return nil, errtext.Fault("the driver named a file of the program by %q, which is not a SHA-256", digest)
	}
	write := func(w io.Writer) error {
		_, err := w.Write(b.GetData())
		return err
	}
	if len(b.GetData()) == 0 {
		write = func(w io.Writer) error { return s.fetch(ctx, digest, w) }
	}
	f, err := s.take(ctx, digest, write)
	if err != nil {
		return nil, fmt.Errorf("fetch a file (SHA-256 %.12s…) from the driver: %w", digest, clusterpb.Plain(err))
	}
	return f, nil
}

// empty returns an open file without content.
func (s *blobStore) empty(ctx context.Context) (*os.File, error) {
	f, err := s.take(ctx, digestOf(sha256.New()), func(io.Writer) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("make an empty file for the program: %w", err)
	}
	return f, nil
}

func (s *blobStore) take(ctx context.Context, digest string, write func(io.Writer) error) (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, digest)
	for {
		f, err := s.open(ctx, path)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		if err := s.store(path, digest, write); err != nil {
			return nil, err
		}
	}
}

// open opens and locks an existing blob.
func (s *blobStore) open(ctx context.Context, path string) (*os.File, error) {
	folder, err := lockfile.Open(ctx, s.lockPath(), lockfile.Shared)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if err := errors.Join(lockfile.Try(f, lockfile.Shared), os.Chtimes(path, now, now)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s *blobStore) lockPath() string { return filepath.Join(s.dir, ".lock") }

// prune removes unused blobs, the least recently used first, until kept bytes are left. While
// another agent takes a blob it does nothing.
func (s *blobStore) prune() {
	folder, err := os.OpenFile(s.lockPath(), os.O_RDWR, 0)
	if err != nil {
		return // there is no blob
	}
	defer folder.Close()
	if lockfile.Try(folder, lockfile.Exclusive) != nil {
		return
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	var blobs []fs.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && !strings.HasPrefix(entry.Name(), ".") {
			blobs = append(blobs, info)
		}
	}
	slices.SortFunc(blobs, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	left := s.kept
	for _, info := range blobs {
		if left -= info.Size(); left < 0 {
			removeUnused(filepath.Join(s.dir, info.Name()))
		}
	}
}

func removeUnused(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	if lockfile.Try(f, lockfile.Exclusive) == nil {
		os.Remove(path)
	}
}

// store writes a blob to a temporary file, checks it and links it to its name, unless another
// agent did meanwhile.
func (s *blobStore) store(path, digest string, write func(io.Writer) error) error {
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
		return fmt.Errorf("the file was damaged on the way (its SHA-256 is %.12s…)", got)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func digestOf(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

func (s *blobStore) fetch(ctx context.Context, digest string, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(fetchTimeout, func() { cancel(fmt.Errorf("the driver sent no data for %v", fetchTimeout)) })
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
			return cmp.Or(context.Cause(ctx), err)
		}
		silent.Stop() // while the disk of this host writes
		if _, err := w.Write(chunk.GetData()); err != nil {
			return err
		}
		silent.Reset(fetchTimeout)
	}
}

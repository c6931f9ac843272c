package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/atomicfile"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Source opens a content by its SHA-256 in hex that a Store on another host has read.
type Source func(ctx context.Context, digest string) (io.ReadCloser, error)

// Import replaces Files for files that a Store on another host has read: it fetches the
// contents that are missing here.
func (d *Store) Import(ctx context.Context, files []*clusterpb.Shipped, from Source) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if len(files) == 0 {
		return nil
	}
	for _, s := range files {
		if err := fetch(ctx, d.dir, s.GetContent(), from, func(int64) {}); err != nil {
			return fmt.Errorf("--files: fetch %s: %w", s.GetName(), oneLineError{err})
		}
	}
	return d.keepOnly(files)
}

// ImportEnvironment replaces Environment for an environment that a Store on another host has
// packed. It calls progress with the number of bytes fetched so far.
func (d *Store) ImportEnvironment(ctx context.Context, e *clusterpb.Environment, from Source,
	progress func(int64),
) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if d.Packed() != nil {
		return nil
	}
	err := fetch(ctx, d.cache, e.GetPacked().GetContent(), from, progress)
	if err == nil {
		err = os.MkdirAll(d.dir, 0o700)
	}
	var text []byte
	if err == nil {
		text, err = protojson.Marshal(e)
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(d.dir, environmentFile), text)
	}
	if err == nil {
		err = d.hold(e)
	}
	if err != nil {
		return fmt.Errorf("--venv: fetch %s: %w", e.GetPacked().GetName(), oneLineError{err})
	}
	return nil
}

// fetch copies a content into a folder, under its digest, unless it exists there.
func fetch(ctx context.Context, dir string, content *clusterpb.Blob, from Source, progress func(int64)) error {
	if !digestName().MatchString(content.GetSha256()) {
		return errtext.Fault("the SHA-256 of the file is %q", content.GetSha256())
	}
	if exists(filepath.Join(dir, content.GetSha256())) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	r, err := from(ctx, content.GetSha256())
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := store(dir, func(w io.Writer) error {
		_, err := io.Copy(w, watched(ctx, r, progress))
		return err
	})
	if err == nil && got.GetSha256() != content.GetSha256() {
		err = errors.Join(errors.New("the file was damaged on the way (its SHA-256 differs): reserve again"),
			os.Remove(filepath.Join(dir, got.GetSha256())))
	}
	return err
}

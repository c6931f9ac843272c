package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster/atomicfile"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Source opens a content, by its SHA-256 in hex, that another host's Depot has read.
type Source func(ctx context.Context, digest string) (io.ReadCloser, error)

// Take is Files for what another host's Depot has read: it brings what is not here.
func (d *Depot) Take(ctx context.Context, given []*clusterpb.Shipped, from Source) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if len(given) == 0 {
		return nil
	}
	for _, s := range given {
		if err := bring(ctx, d.dir, s.GetContent(), from, func(int64) {}); err != nil {
			return fmt.Errorf("--files: bring %s: %w", s.GetName(), plain(err))
		}
	}
	return d.keepOnly(given)
}

// TakeEnvironment is Environment for one that another host's Depot has packed. told hears
// how many bytes have come.
func (d *Depot) TakeEnvironment(ctx context.Context, e *clusterpb.Environment, from Source, told func(int64)) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if d.Packed() != nil {
		return nil
	}
	err := bring(ctx, d.cache, e.GetPacked().GetContent(), from, told)
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
	if err != nil {
		return fmt.Errorf("--venv: bring %s: %w", e.GetPacked().GetName(), plain(err))
	}
	d.hold(e)
	return nil
}

// bring copies a content into a folder, under its digest, unless it is there.
func bring(ctx context.Context, dir string, content *clusterpb.Blob, from Source, told func(int64)) error {
	if !digestName().MatchString(content.GetSha256()) {
		return errors.New("it has no digest")
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
	came, err := keep(dir, func(w io.Writer) error {
		n := int64(0)
		_, err := io.Copy(w, io.TeeReader(r, writerFunc(func(b []byte) { n += int64(len(b)); told(n) })))
		return err
	})
	if err == nil && came.GetSha256() != content.GetSha256() {
		err = errors.Join(errors.New("what came is something else"), os.Remove(filepath.Join(dir, came.GetSha256())))
	}
	return err
}

// writerFunc hears what passes.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

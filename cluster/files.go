package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// keepBlob takes a blob's data in and gives it its name.
func (c *Coordinator) keepBlob(b *clusterpb.Blob) {
	if b == nil || (len(b.GetData()) == 0 && b.GetSha256() != "") {
		return
	}
	sum := sha256.Sum256(b.GetData())
	b.Sha256, b.Size = hex.EncodeToString(sum[:]), int64(len(b.GetData()))
	c.blobs[b.Sha256] = b.Data
}

// Fetch implements the Coordinator service.
func (c *Coordinator) Fetch(req *clusterpb.FetchRequest, stream grpc.ServerStreamingServer[clusterpb.Chunk]) error {
	var data []byte
	var ok bool
	if err := c.call(stream.Context(), func() { data, ok = c.blobs[req.GetSha256()] }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if !ok {
		return status.Errorf(codes.NotFound, "no blob %s: the run it belonged to is over", req.GetSha256())
	}
	const chunk = 1 << 20
	for {
		n := min(chunk, len(data))
		if err := stream.Send(&clusterpb.Chunk{Data: data[:n]}); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// Sync implements the Coordinator service: bytes land at their offset in a file
// below the cluster's directory.
func (c *Coordinator) Sync(stream grpc.ClientStreamingServer[clusterpb.FileChunk, clusterpb.SyncReply]) error {
	var files int64
	var open *os.File
	var name string
	defer func() {
		if open != nil {
			_ = open.Close() // the last write was checked
		}
	}()
	for {
		ch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&clusterpb.SyncReply{Files: files})
		}
		if err != nil {
			return err
		}
		if ch.GetPath() != name || open == nil {
			clean := filepath.Clean(ch.GetPath())
			if !filepath.IsLocal(clean) || !strings.HasPrefix(clean, "run-") || ch.GetOffset() < 0 {
				return status.Errorf(codes.InvalidArgument, "%q is not a file of a run", ch.GetPath())
			}
			if open != nil {
				if err := open.Close(); err != nil {
					return status.Errorf(codes.Internal, "write %s: %v", name, err)
				}
			}
			full := filepath.Join(c.cfg.Dir, clean)
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				return status.Errorf(codes.Internal, "write %s: %v", clean, err)
			}
			open, err = os.OpenFile(full, os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return status.Errorf(codes.Internal, "write %s: %v", clean, err)
			}
			name = ch.GetPath()
			files++
		}
		if _, err := open.WriteAt(ch.GetData(), ch.GetOffset()); err != nil {
			return status.Errorf(codes.Internal, "write %s: %v", name, err)
		}
	}
}

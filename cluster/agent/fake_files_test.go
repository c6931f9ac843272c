package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func (c *coordinator) Fetch(r *clusterpb.FetchRequest, stream grpc.ServerStreamingServer[clusterpb.Chunk]) error {
	c.mu.Lock()
	data, ok := c.blobs[r.GetSha256()]
	c.mu.Unlock()
	if !ok {
		return status.Error(codes.NotFound, "no such blob")
	}
	for chunk := range slices.Chunk(data, 1<<20) {
		if err := stream.Send(&clusterpb.Chunk{Data: chunk}); err != nil {
			return err
		}
	}
	return nil
}

func (c *coordinator) Sync(stream grpc.ClientStreamingServer[clusterpb.FileChunk, clusterpb.SyncReply]) error {
	for got := 0; ; {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&clusterpb.SyncReply{})
		}
		if err != nil {
			return err
		}
		got += len(chunk.GetData())
		c.mu.Lock()
		if c.syncLimit > 0 && got > c.syncLimit {
			c.mu.Unlock()
			return status.Error(codes.Unavailable, "the link broke")
		}
		have := c.files[chunk.GetPath()]
		c.files[chunk.GetPath()] = append(have[:min(int(chunk.GetOffset()), len(have))], chunk.GetData()...)
		c.change.Broadcast()
		c.mu.Unlock()
	}
}

func (c *coordinator) Put(stream grpc.BidiStreamingServer[clusterpb.PutRequest, clusterpb.PutReply]) error {
	if c.keeper == nil {
		return c.UnimplementedCoordinatorServer.Put(stream)
	}
	if c.mayPut != nil {
		select {
		case <-c.mayPut:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	return c.keeper.Put("0", stream)
}

func (c *coordinator) List(_ context.Context, r *clusterpb.ListRequest) (*clusterpb.ListReply, error) {
	return c.keeper.List(r)
}

func (c *coordinator) Get(r *clusterpb.GetRequest, stream grpc.ServerStreamingServer[clusterpb.GetReply]) error {
	return c.keeper.Get(r, stream)
}

// blob makes content available to agents.
func (c *coordinator) blob(content string) *clusterpb.Blob {
	sum := sha256.Sum256([]byte(content))
	digest := hex.EncodeToString(sum[:])
	c.mu.Lock()
	c.blobs[digest] = []byte(content)
	c.mu.Unlock()
	return &clusterpb.Blob{Sha256: digest, Size: int64(len(content))}
}

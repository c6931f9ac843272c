package runfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/rundir"
)

// chunk is the size of the pieces in which files travel, in bytes.
const chunk = 256 << 10

// List serves the call: the whole files below a folder, those that name others last.
func (k *Keeper) List(req *clusterpb.ListRequest) (*clusterpb.ListReply, error) {
	folder := path.Join(rundir.Name(req.GetRun()), req.GetFolder())
	if err := k.check(folder); err != nil {
		return nil, err
	}
	files, err := k.disk.Files(folder)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "list %s: %v", folder, err)
	}
	reply := &clusterpb.ListReply{}
	for _, f := range files {
		if k.check(f.Path) == nil && !passing().MatchString(f.Path) {
			reply.Files = append(reply.Files, headOf(f))
		}
	}
	slices.SortFunc(reply.Files, func(a, b *clusterpb.FileHead) int { return ByRank(a.GetPath(), b.GetPath()) })
	return reply, nil
}

func headOf(f File) *clusterpb.FileHead {
	return &clusterpb.FileHead{Path: f.Path, Size: f.Size, ModifiedUnixNano: f.Modified.UnixNano()}
}

// Get serves the call: a file's content as it is now.
func (k *Keeper) Get(req *clusterpb.GetRequest, stream grpc.ServerStreamingServer[clusterpb.GetReply]) error {
	name := req.GetPath()
	if err := k.check(name); err != nil {
		return err
	}
	stat, err := k.disk.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.NotFound, "there is no %s", name)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "read %s: %v", name, err)
	}
	f, err := k.disk.Open(name)
	if err != nil {
		return status.Errorf(codes.NotFound, "read %s: %v", name, err)
	}
	defer f.Close()
	if err := stream.Send(&clusterpb.GetReply{File: headOf(stat)}); err != nil {
		return err
	}
	sum := sha256.New()
	buffer := make([]byte, chunk)
	for {
		n, err := f.Read(buffer)
		if n > 0 {
			sum.Write(buffer[:n])
			if err := stream.Send(&clusterpb.GetReply{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return stream.Send(&clusterpb.GetReply{Sha256: hex.EncodeToString(sum.Sum(nil))})
		}
		if err != nil {
			return status.Errorf(codes.Internal, "read %s: %v", name, err)
		}
	}
}

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
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// chunk is the maximum size of the data in one message.
const chunk = 256 << 10

// List serves the List call: the complete files below a folder, those that refer to others
// last.
func (r *Receiver) List(req *clusterpb.ListRequest) (*clusterpb.ListReply, error) {
	folder := path.Join(rundir.Name(req.GetRun()), req.GetFolder())
	if err := r.check(folder); err != nil {
		return nil, err
	}
	files, err := r.storage.Files(folder)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "list %s: %v", folder, err)
	}
	reply := &clusterpb.ListReply{}
	for _, f := range files {
		if r.check(f.Path) == nil && !temporaryName().MatchString(f.Path) {
			reply.Files = append(reply.Files, headOf(f))
		}
	}
	slices.SortFunc(reply.Files, func(a, b *clusterpb.FileHead) int { return ByRank(a.GetPath(), b.GetPath()) })
	return reply, nil
}

func headOf(f File) *clusterpb.FileHead {
	return &clusterpb.FileHead{Path: f.Path, Size: f.Size, ModifiedUnixNano: f.Modified.UnixNano()}
}

// Get serves the Get call: the current contents of a file.
func (r *Receiver) Get(req *clusterpb.GetRequest, stream grpc.ServerStreamingServer[clusterpb.GetReply]) error {
	name := req.GetPath()
	if err := r.check(name); err != nil {
		return err
	}
	stat, err := r.storage.Stat(name)
	if err != nil {
		return unread(name, err)
	}
	f, err := r.storage.Open(name)
	if err != nil {
		return unread(name, err)
	}
	defer f.Close()
	if err := stream.Send(&clusterpb.GetReply{File: headOf(stat)}); err != nil {
		return err
	}
	digest, err := SendContent(f, func(data []byte) error { return stream.Send(&clusterpb.GetReply{Data: data}) },
		func(err error) error { return unread(name, err) })
	if err != nil {
		return err
	}
	return stream.Send(&clusterpb.GetReply{Sha256: digest})
}

// SendContent passes a content in pieces to send, and returns its SHA-256 in hex. Its error is that of send, or what
// unread makes of that of the reading.
func SendContent(r io.Reader, send func([]byte) error, unread func(error) error) (digest string, err error) {
	sum, buffer := sha256.New(), make([]byte, chunk)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			sum.Write(buffer[:n])
			if err := send(buffer[:n]); err != nil {
				return "", err
			}
		}
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return "", unread(err)
		}
	}
}

// unread returns the status for a file that cannot be read; the copier tries again where the file is gone.
func unread(name string, err error) error {
	code := codes.Internal
	if errors.Is(err, fs.ErrNotExist) {
		code = codes.NotFound
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok { // it names the file again
		err = at.Err
	}
	return status.Errorf(code, "the driver cannot read %s: %v", name, err)
}

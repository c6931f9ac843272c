package runfiles

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Append serves the Sync call of an executor: it writes data at an offset of a file.
func (r *Receiver) Append(executor string,
	stream grpc.ClientStreamingServer[clusterpb.FileChunk, clusterpb.SyncReply],
) error {
	var files int64
	var open io.WriteCloser
	var name string
	var end int64 // offset after the last write
	closed := func() error {
		if open == nil {
			return nil
		}
		f := open
		open = nil
		return f.Close()
	}
	defer func() { _ = closed() }() // errors of the writes were returned
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if err := closed(); err != nil {
				return r.failed(name, err)
			}
			return stream.SendAndClose(&clusterpb.SyncReply{Files: files})
		}
		if err != nil {
			return err
		}
		if chunk.GetPath() != name || chunk.GetOffset() != end || open == nil {
			if err := closed(); err != nil {
				return r.failed(name, err)
			}
			name, end = chunk.GetPath(), chunk.GetOffset()
			if err := r.check(name); err != nil {
				return err
			}
			if end < 0 {
				return protocolError("%s is sent from the offset %d", name, end)
			}
			if !r.wanted(executor, name) {
				continue
			}
			if open, err = r.storage.Write(name, end); err != nil {
				return r.failed(name, err)
			}
			r.own(executor, name)
			files++
		}
		if _, err := open.Write(chunk.GetData()); err != nil {
			return r.failed(name, err)
		}
		end += int64(len(chunk.GetData()))
	}
}

// upload is one Put call.
type upload struct {
	*Receiver
	executor string
	stream   grpc.BidiStreamingServer[clusterpb.PutRequest, clusterpb.PutReply]
	staged   []incoming // complete files, in order of arrival
	file     *incoming  // the file being received; nil between two files
}

// incoming is a file stored under a temporary name.
type incoming struct {
	head *clusterpb.FileHead
	part string // the temporary name
	open io.WriteCloser
	have int64
	sum  hash.Hash
}

// Put serves the Put call of an executor.
func (r *Receiver) Put(executor string,
	stream grpc.BidiStreamingServer[clusterpb.PutRequest, clusterpb.PutReply],
) error {
	leave, err := r.enter(stream.Context(), executor)
	if err != nil {
		return err
	}
	defer leave()
	p := &upload{Receiver: r, executor: executor, stream: stream}
	defer func() {
		if p.file != nil && p.file.open != nil {
			_ = p.file.open.Close() // the next call continues from it
		}
	}()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.handle(m); err != nil {
			return err
		}
	}
}

// enter admits one call of an executor at a time, because a broken stream may still be writing
// a file that the next call continues.
func (r *Receiver) enter(ctx context.Context, executor string) (leave func(), err error) {
	r.mu.Lock()
	turn := r.sending[executor]
	if turn == nil {
		turn = make(chan struct{}, 1)
		r.sending[executor] = turn
	}
	r.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *upload) handle(m *clusterpb.PutRequest) error {
	switch m := m.GetMessage().(type) {
	case *clusterpb.PutRequest_File:
		return p.begin(m.File)
	case *clusterpb.PutRequest_Data:
		return p.data(m.Data)
	case *clusterpb.PutRequest_Sha256:
		return p.complete(m.Sha256)
	case *clusterpb.PutRequest_Commit:
		return p.commit(m.Commit)
	}
	return protocolError("a message has no content")
}

// protocolError returns the error for a message that no agent sends.
func protocolError(format string, args ...any) error {
	return status.Error(codes.InvalidArgument,
		errtext.Fault("an executor sends files of the run in a wrong way: "+format, args...).Error())
}

// begin opens a temporary file, or continues one, and replies with its current size.
func (p *upload) begin(head *clusterpb.FileHead) error {
	if err := p.check(head.GetPath()); err != nil {
		return err
	}
	if p.file != nil || head.GetSize() < 0 {
		return protocolError("%s with %d bytes begins before the file before it is complete", head.GetPath(), head.GetSize())
	}
	if !p.wanted(p.executor, head.GetPath()) {
		return p.stream.Send(&clusterpb.PutReply{Unwanted: true})
	}
	in := &incoming{head: head, part: partName(p.executor, head), sum: sha256.New()}
	have, err := p.partial(in)
	if err == nil {
		in.have = have
		err = p.checkSpace(head.GetSize() - have)
	}
	if err == nil {
		in.open, err = p.storage.Write(in.part, have)
	}
	if err != nil {
		return p.failed(head.GetPath(), err)
	}
	p.file = in
	return p.stream.Send(&clusterpb.PutReply{Have: have})
}

// partName returns the temporary name of a version of a file. It is in the run's folder, not in
// a subfolder, so that readers of checkpoints and models do not find it.
func partName(executor string, head *clusterpb.FileHead) string {
	sum := sha256.Sum256(
		fmt.Appendf(nil, "%q %q %d %d", executor, head.GetPath(), head.GetSize(), head.GetModifiedUnixNano()))
	run, _, _ := strings.Cut(head.GetPath(), "/")
	return path.Join(run, partPrefix+hex.EncodeToString(sum[:12]))
}

// maxResume limits how many bytes of a previous call are reused. Both sides read them again for
// the digest, which must take less time than the sender's timeout; the rest is sent again.
const maxResume = 2 << 30

// partial reads what an earlier call stored of a file.
func (p *upload) partial(in *incoming) (int64, error) {
	f, err := p.storage.Open(in.part)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	have, err := io.Copy(in.sum, io.LimitReader(f, maxResume))
	if err == nil && have > in.head.GetSize() { // impossible with our Sender
		return 0, errors.Join(p.storage.Remove(in.part),
			errors.New("the part of the file that is here is larger than the file: it is removed and sent again"))
	}
	return have, err
}

// spare is the disk space that a received file must leave free, in bytes.
const spare = 16 << 20

func (p *upload) checkSpace(wanted int64) error {
	free, err := p.storage.Room()
	if err == nil && wanted > 0 && free-spare < wanted {
		return unix.ENOSPC
	}
	return err
}

func (p *upload) data(b []byte) error {
	in := p.file
	if in == nil || in.have+int64(len(b)) > in.head.GetSize() {
		return protocolError("there is more data than the file has bytes")
	}
	if _, err := in.open.Write(b); err != nil {
		p.drop()
		return p.failed(in.head.GetPath(), err)
	}
	in.sum.Write(b)
	in.have += int64(len(b))
	return nil
}

// drop discards the file being received.
func (p *upload) drop() {
	_ = p.file.open.Close()
	_ = p.storage.Remove(p.file.part) // otherwise Sweep does
	p.file = nil
}

func (p *upload) complete(digest string) error {
	in := p.file
	if in == nil {
		return protocolError("there is a digest, but no file")
	}
	if got := hex.EncodeToString(in.sum.Sum(nil)); got != digest || in.have != in.head.GetSize() {
		p.drop()
		return status.Errorf(codes.Aborted, "%s was damaged in transfer: %d of %d bytes, SHA-256 %.12s instead of %.12s",
			in.head.GetPath(), in.have, in.head.GetSize(), got, digest)
	}
	p.file = nil
	if err := in.open.Close(); err != nil {
		return p.failed(in.head.GetPath(), err)
	}
	p.staged = append(p.staged, *in)
	return nil
}

// commit renames the received files to their names, then removes files.
func (p *upload) commit(c *clusterpb.FileCommit) error {
	if p.file != nil {
		return protocolError("the files end before %s is complete", p.file.head.GetPath())
	}
	for _, name := range c.GetRemove() {
		if err := p.check(name); err != nil {
			return err
		}
	}
	for _, in := range p.staged {
		name := in.head.GetPath()
		if !p.wanted(p.executor, name) { // another executor has written it meanwhile
			_ = p.storage.Remove(in.part)
			continue
		}
		if err := p.storage.Rename(in.part, name, time.Unix(0, in.head.GetModifiedUnixNano())); err != nil {
			return p.failed(name, err)
		}
		p.own(p.executor, name)
	}
	p.staged = nil
	for _, name := range c.GetRemove() {
		if !p.mayRemove(p.executor, name) {
			continue
		}
		if err := p.storage.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p.failed(name, err)
		}
		p.own("", name)
	}
	return p.stream.Send(&clusterpb.PutReply{})
}

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
)

// Append serves the Sync call of an executor: bytes land at their offset in a file.
func (k *Keeper) Append(executor string, stream grpc.ClientStreamingServer[clusterpb.FileChunk, clusterpb.SyncReply]) error {
	var files int64
	var open io.WriteCloser
	var name string
	var end int64 // of what was written
	closed := func() error {
		if open == nil {
			return nil
		}
		f := open
		open = nil
		return f.Close()
	}
	defer func() { _ = closed() }() // the last write was checked
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if err := closed(); err != nil {
				return k.failed(name, err)
			}
			return stream.SendAndClose(&clusterpb.SyncReply{Files: files})
		}
		if err != nil {
			return err
		}
		if chunk.GetPath() != name || chunk.GetOffset() != end || open == nil {
			if err := closed(); err != nil {
				return k.failed(name, err)
			}
			name, end = chunk.GetPath(), chunk.GetOffset()
			if err := k.check(name); err != nil {
				return err
			}
			if end < 0 {
				return status.Errorf(codes.InvalidArgument, "%s at offset %d", name, end)
			}
			if !k.wanted(executor, name) {
				continue
			}
			if open, err = k.disk.Write(name, end); err != nil {
				return k.failed(name, err)
			}
			k.own(executor, name)
			files++
		}
		if _, err := open.Write(chunk.GetData()); err != nil {
			return k.failed(name, err)
		}
		end += int64(len(chunk.GetData()))
	}
}

// putting is one Put call.
type putting struct {
	*Keeper
	executor string
	stream   grpc.BidiStreamingServer[clusterpb.PutRequest, clusterpb.PutReply]
	aside    []incoming // complete, in the order they came
	file     *incoming  // that comes; nil between two
}

// incoming is a file that is put aside.
type incoming struct {
	head *clusterpb.FileHead
	part string // where it lies
	open io.WriteCloser
	have int64
	sum  hash.Hash
}

// Put serves the call of an executor.
func (k *Keeper) Put(executor string, stream grpc.BidiStreamingServer[clusterpb.PutRequest, clusterpb.PutReply]) error {
	leave, err := k.enter(stream.Context(), executor)
	if err != nil {
		return err
	}
	defer leave()
	p := &putting{Keeper: k, executor: executor, stream: stream}
	defer func() {
		if p.file != nil && p.file.open != nil {
			_ = p.file.open.Close() // what came of it is found by the next call
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
		if err := p.take(m); err != nil {
			return err
		}
	}
}

// enter lets one call of an executor at a time in: a stream that broke may still be
// writing what its successor goes on with.
func (k *Keeper) enter(ctx context.Context, executor string) (leave func(), err error) {
	k.mu.Lock()
	turn := k.sending[executor]
	if turn == nil {
		turn = make(chan struct{}, 1)
		k.sending[executor] = turn
	}
	k.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *putting) take(m *clusterpb.PutRequest) error {
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
	return status.Error(codes.InvalidArgument, "a message without content")
}

// begin opens a file aside, or goes on with it, and says how much of it is there.
func (p *putting) begin(head *clusterpb.FileHead) error {
	if err := p.check(head.GetPath()); err != nil {
		return err
	}
	if p.file != nil || head.GetSize() < 0 {
		return status.Errorf(codes.InvalidArgument, "%s of %d bytes, before the last file was complete", head.GetPath(), head.GetSize())
	}
	if !p.wanted(p.executor, head.GetPath()) {
		return p.stream.Send(&clusterpb.PutReply{Unwanted: true})
	}
	in := &incoming{head: head, part: partName(p.executor, head), sum: sha256.New()}
	have, err := p.taken(in)
	if err == nil {
		in.have = have
		err = p.room(head.GetSize() - have)
	}
	if err == nil {
		in.open, err = p.disk.Write(in.part, have)
	}
	if err != nil {
		return p.failed(head.GetPath(), err)
	}
	p.file = in
	return p.stream.Send(&clusterpb.PutReply{Have: have})
}

// partName is where a version of a file is put aside. It begins with the run's folder,
// so that no reader of checkpoints or models meets it.
func partName(executor string, head *clusterpb.FileHead) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d", executor, head.GetPath(), head.GetSize(), head.GetModifiedUnixNano()))
	run, _, _ := strings.Cut(head.GetPath(), "/")
	return path.Join(run, partPrefix+hex.EncodeToString(sum[:12]))
}

// mostTaken is how much of what an earlier call left is gone on from, in bytes. Both sides
// read it again for its digest, which must not take the silence that a sender bears;
// what lies behind is sent again.
const mostTaken = 2 << 30

// taken reads what an earlier call left of a file.
func (p *putting) taken(in *incoming) (int64, error) {
	f, err := p.disk.Open(in.part)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	have, err := io.Copy(in.sum, io.LimitReader(f, mostTaken))
	if err == nil && have > in.head.GetSize() { // no sender of ours
		return 0, errors.Join(p.disk.Remove(in.part), errors.New("more of it is there than there is"))
	}
	return have, err
}

// spare is what a file that is taken in leaves free, in bytes.
const spare = 16 << 20

func (p *putting) room(wanted int64) error {
	free, err := p.disk.Room()
	if err == nil && wanted > 0 && free-spare < wanted {
		return unix.ENOSPC
	}
	return err
}

func (p *putting) data(b []byte) error {
	in := p.file
	if in == nil || in.have+int64(len(b)) > in.head.GetSize() {
		return status.Error(codes.InvalidArgument, "more data than the file's size")
	}
	if _, err := in.open.Write(b); err != nil {
		p.drop()
		return p.failed(in.head.GetPath(), err)
	}
	in.sum.Write(b)
	in.have += int64(len(b))
	return nil
}

// drop forgets the file that comes.
func (p *putting) drop() {
	_ = p.file.open.Close()
	_ = p.disk.Remove(p.file.part) // else Sweep does
	p.file = nil
}

func (p *putting) complete(digest string) error {
	in := p.file
	if in == nil {
		return status.Error(codes.InvalidArgument, "the end of no file")
	}
	if got := hex.EncodeToString(in.sum.Sum(nil)); got != digest || in.have != in.head.GetSize() {
		p.drop()
		return status.Errorf(codes.Aborted, "%s is not what was sent: %d of %d bytes, SHA-256 %.12s instead of %.12s", in.head.GetPath(), in.have, in.head.GetSize(), got, digest)
	}
	p.file = nil
	if err := in.open.Close(); err != nil {
		return p.failed(in.head.GetPath(), err)
	}
	p.aside = append(p.aside, *in)
	return nil
}

// commit gives what came its names, then removes what is to go.
func (p *putting) commit(c *clusterpb.FileCommit) error {
	if p.file != nil {
		return status.Errorf(codes.InvalidArgument, "%s is not complete", p.file.head.GetPath())
	}
	for _, name := range c.GetRemove() {
		if err := p.check(name); err != nil {
			return err
		}
	}
	for _, in := range p.aside {
		name := in.head.GetPath()
		if !p.wanted(p.executor, name) { // claimed meanwhile
			_ = p.disk.Remove(in.part)
			continue
		}
		if err := p.disk.Rename(in.part, name, time.Unix(0, in.head.GetModifiedUnixNano())); err != nil {
			return p.failed(name, err)
		}
		p.own(p.executor, name)
	}
	p.aside = nil
	for _, name := range c.GetRemove() {
		if !p.mayRemove(p.executor, name) {
			continue
		}
		if err := p.disk.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p.failed(name, err)
		}
		p.own("", name)
	}
	return p.stream.Send(&clusterpb.PutReply{})
}

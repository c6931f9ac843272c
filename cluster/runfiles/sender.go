package runfiles

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/rundir"
)

// silence is how long nothing may go through before a call is given up.
const silence = time.Minute

// errChanged says that a file was written to while it was sent.
var errChanged = errors.New("it changed while it was sent")

// Sender is an executor's side of one run: it sends the run's files that must arrive
// whole, and the removal of those that were sent. Its methods may be called from many
// goroutines.
type Sender struct {
	client clusterpb.CoordinatorClient
	root   *os.Root // of the executor's runs
	run    string   // the run's folder below it

	mu sync.Mutex // held for a round
	// guarded by mu
	seen map[string]quiet // by the last round
	sent map[string]stamp // what is at the driver, sent or fetched
	left []string         // what the last round had to send
}

// NewSender sends the files of a run from its folder below root.
func NewSender(client clusterpb.CoordinatorClient, root *os.Root, run int32) *Sender {
	return &Sender{client: client, root: root, run: rundir.Name(run), seen: map[string]quiet{}, sent: map[string]stamp{}}
}

// Round sends what is complete now; all there is when end is said, since nobody
// writes any more. progress is called whenever something went through. An error
// leaves it to the next round, which goes on where this one broke.
func (s *Sender) Round(ctx context.Context, end bool, progress func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	found, complete := s.look(now)
	due, copied := s.due(found, now, end)
	var gone []string
	if complete {
		gone = s.removed(found)
	}
	s.seen, s.left = found, due
	if len(due) == 0 && len(gone) == 0 {
		return nil
	}
	sent, err := s.put(ctx, due, copied, gone, end, progress)
	if err != nil {
		return err
	}
	s.left = nil
	maps.Copy(s.sent, sent)
	for _, name := range gone {
		delete(s.sent, name)
	}
	return nil
}

// Left are the files that the last round could not send.
func (s *Sender) Left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.left)
}

// put sends files and removals in one call, which counts as a whole. Of the files in copied it sends
// a copy each, if one can be taken.
func (s *Sender) put(root context.Context, due []string, copied map[string]bool, gone []string, end bool, progress func()) (map[string]stamp, error) {
	ctx, cancel := context.WithCancelCause(root)
	defer cancel(nil)
	watch := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing went through for %v", silence)) })
	defer watch.Stop()
	moved := func() {
		watch.Reset(silence)
		progress()
	}
	stream, err := s.client.Put(ctx)
	if err != nil {
		return nil, fmt.Errorf("send the run's files: %w", err)
	}
	sent := map[string]stamp{}
	for _, name := range due {
		open := s.open
		if copied[name] {
			open = s.copyOf
		}
		f, version, err := open(name)
		if copied[name] && errors.Is(err, errChanged) {
			continue // the next round tries again
		}
		if err == nil {
			err = errors.Join(s.send(stream, name, f, version, moved), f.Close())
		}
		if errors.Is(err, os.ErrNotExist) && !end {
			return nil, fmt.Errorf("send %s: %w", name, errChanged)
		}
		if err != nil {
			return nil, why(ctx, stream, fmt.Errorf("send %s: %w", name, err))
		}
		sent[name] = version
	}
	for name, version := range sent {
		if now, err := s.stat(name); !end && !copied[name] && (err != nil || now != version) {
			return nil, fmt.Errorf("send %s: %w", name, errChanged) // the others may not fit it any more
		}
	}
	err = stream.Send(&clusterpb.PutRequest{Message: &clusterpb.PutRequest_Commit{Commit: &clusterpb.FileCommit{Remove: gone}}})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		return nil, why(ctx, stream, fmt.Errorf("send the run's files: %w", err))
	}
	moved()
	return sent, stream.CloseSend()
}

// why is what broke a stream: Send only says that it is broken.
func why(ctx context.Context, stream grpc.ClientStream, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		if broke := stream.RecvMsg(&clusterpb.PutReply{}); broke != nil {
			return broke
		}
	}
	return err
}

// send sends one file, from where the driver has it.
func (s *Sender) send(stream grpc.BidiStreamingClient[clusterpb.PutRequest, clusterpb.PutReply], name string, f *os.File, version stamp, moved func()) error {
	head := &clusterpb.FileHead{Path: name, Size: version.size, ModifiedUnixNano: version.modified}
	if err := stream.Send(&clusterpb.PutRequest{Message: &clusterpb.PutRequest_File{File: head}}); err != nil {
		return err
	}
	reply, err := stream.Recv()
	if err != nil || reply.GetUnwanted() {
		return err
	}
	sum := sha256.New()
	if n, err := io.CopyN(sum, f, reply.GetHave()); err != nil {
		return fmt.Errorf("%w: %d of %d bytes", errChanged, n, version.size)
	}
	buffer := make([]byte, chunk)
	for left := version.size - reply.GetHave(); left > 0; {
		n, err := io.ReadFull(f, buffer[:min(left, chunk)])
		if err != nil {
			return fmt.Errorf("%w: %w", errChanged, err)
		}
		sum.Write(buffer[:n])
		if err := stream.Send(&clusterpb.PutRequest{Message: &clusterpb.PutRequest_Data{Data: buffer[:n]}}); err != nil {
			return err
		}
		left -= int64(n)
		moved()
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	return stream.Send(&clusterpb.PutRequest{Message: &clusterpb.PutRequest_Sha256{Sha256: digest}})
}

// fetched notes that a file is as the driver has it, so that it is not sent back.
func (s *Sender) fetched(name string, info os.FileInfo) {
	s.sent[name] = stampOf(info)
}

// forgotten notes that the driver has a file no more.
func (s *Sender) forgotten(name string) { delete(s.sent, name) }

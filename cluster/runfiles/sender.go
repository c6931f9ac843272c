package runfiles

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// silence is how long a call may make no progress before it is canceled.
const silence = time.Minute

// errChanged reports that a file was modified while it was sent.
var errChanged = errors.New("the file changed while it was sent")

// Sender is an executor's side of one run: it sends the run's files, except append-only ones,
// and reports the removal of files it has sent. Its methods are safe for concurrent use.
type Sender struct {
	client clusterpb.CoordinatorClient
	root   *os.Root // the folder of the executor's runs
	run    string   // the run's folder below root
	// written reports whether a process has a file open for writing, and whether that is known.
	written func(*os.File) (written, known bool)

	mu sync.Mutex // held during Sync
	// guarded by mu
	seen  map[string]seenVersion // by the last Sync
	sent  map[string]stamp       // versions at the driver, sent or fetched
	left  []string               // files that the last Sync had to send
	named map[string][]string    // checkpoints that the driver's version of a state file names, by the file

	refused map[string]string // files that are not sent, with the reason; guarded by mu
}

// NewSender returns a Sender of the run's folder below root.
func NewSender(client clusterpb.CoordinatorClient, root *os.Root, run int32) *Sender {
	return &Sender{
		client: client, root: root, run: rundir.Name(run), written: written, seen: map[string]seenVersion{},
		sent: map[string]stamp{}, named: map[string][]string{}, refused: map[string]string{},
	}
}

// Sync sends the files that are complete now; with end, when no program writes any more, all
// files. It calls progress whenever data was sent. After an error, the next call continues
// where this one stopped.
func (s *Sender) Sync(ctx context.Context, end bool, progress func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	before := s.statesBefore()
	found, complete := s.scan(now)
	states := s.states(found, before, end)
	due, copied := s.due(found, states, now, end)
	var removed []string
	if complete {
		removed = s.removed(found, states, due)
	}
	copies, failed := s.copies(ctx, copied)
	defer closeCopies(copies)
	due = slices.DeleteFunc(due, func(name string) bool { return copied[name] && copies[name].File == nil })
	s.seen, s.left = found, due
	if len(due) == 0 && len(removed) == 0 {
		return failed
	}
	sent, err := s.put(ctx, due, content{copies, states}, removed, end, progress)
	if err != nil {
		return errors.Join(err, failed)
	}
	s.left = nil
	maps.Copy(s.sent, sent)
	for name, version := range sent {
		s.seen[name] = seenVersion{version, now, now} // a later version is unsent from the next scan on
	}
	for _, name := range removed {
		delete(s.sent, name)
		delete(s.named, name)
	}
	for name, state := range states {
		if _, ok := sent[name]; ok {
			s.named[name] = state.names
		}
	}
	return failed
}

// Left returns the files that the last Sync could not send.
func (s *Sender) Left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.left)
}

// ErrRefused is the error for files that are not sent because of their names or modes.
var ErrRefused = errors.New("cannot be sent as it is")

// maxRefused bounds how many names Refused returns: a program may write any number, and a message has 4 MB.
const maxRefused = 200

// Refused returns files that the last Sync did not send because of their names or modes, at most maxRefused, and an
// error with the reasons, which wraps ErrRefused; nil if there are none.
func (s *Sender) Refused() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.refused))
	if len(names) == 0 {
		return nil, nil
	}
	reasons := slices.Compact(slices.Sorted(maps.Values(s.refused)))
	err := fmt.Errorf("%w: %s", ErrRefused, strings.Join(reasons, ", "))
	names = names[:min(len(names), maxRefused)]
	for i, name := range names {
		names[i] = strings.ToValidUTF8(name, "\uFFFD") // as messages require
	}
	return names, err
}

// content has the files that are not sent as they are on the disk.
type content struct {
	copies map[string]fileCopy
	states map[string]*stateFile
}

// fixed reports whether a file's content does not depend on what the program writes meanwhile.
func (c content) fixed(name string) bool { return c.copies[name].File != nil || c.states[name] != nil }

// put sends files and removals in one call, which succeeds or fails as a whole.
func (s *Sender) put(root context.Context, due []string, c content, removed []string, end bool,
	progress func(),
) (map[string]stamp, error) {
	ctx, cancel := context.WithCancelCause(root)
	defer cancel(nil)
	watch := time.AfterFunc(silence,
		func() { cancel(fmt.Errorf("no data of the run's files could be sent to the driver for %v", silence)) })
	defer watch.Stop()
	moved := func() {
		watch.Reset(silence)
		progress()
	}
	stream, err := s.client.Put(ctx)
	if err != nil {
		return nil, err
	}
	sent := map[string]stamp{}
	for _, name := range due {
		version, err := s.sendOne(stream, name, c, moved)
		if errors.Is(err, os.ErrNotExist) && !end {
			return nil, fmt.Errorf("send %s: %w", name, errChanged)
		}
		if errors.Is(err, fs.ErrPermission) { // it must not hold up the others
			s.refused[name] = "its mode denies reading it"
			continue
		}
		if err != nil {
			return nil, streamError(ctx, stream, fmt.Errorf("send %s: %w", name, err))
		}
		sent[name] = version
	}
	for name, version := range sent {
		if now, err := s.stat(name); !end && !c.fixed(name) && (err != nil || now != version) {
			return nil, fmt.Errorf("send %s: %w", name, errChanged) // the other files may not match it any more
		}
	}
	err = stream.Send(
		&clusterpb.PutRequest{Message: &clusterpb.PutRequest_Commit{Commit: &clusterpb.FileCommit{Remove: removed}}})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		return nil, streamError(ctx, stream, err)
	}
	moved()
	return sent, stream.CloseSend()
}

// streamError returns the cause of a broken stream; Send itself only returns io.EOF.
func streamError(ctx context.Context, stream grpc.ClientStream, err error) error {
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

// sendOne sends a file, or what stands for it, and returns its version.
func (s *Sender) sendOne(stream grpc.BidiStreamingClient[clusterpb.PutRequest, clusterpb.PutReply], name string,
	c content, moved func(),
) (stamp, error) {
	if state := c.states[name]; state != nil {
		return state.version, s.send(stream, name, bytes.NewReader(state.content), state.version, moved)
	}
	if copied := c.copies[name]; copied.File != nil {
		return copied.version, s.send(stream, name, copied, copied.version, moved)
	}
	f, version, err := s.open(name)
	if err != nil {
		return version, err
	}
	return version, errors.Join(s.send(stream, name, f, version, moved), f.Close())
}

// send sends one file, from the offset that the driver already has.
func (s *Sender) send(stream grpc.BidiStreamingClient[clusterpb.PutRequest, clusterpb.PutReply], name string,
	f io.Reader, version stamp, moved func(),
) error {
	head := &clusterpb.FileHead{Path: name, Size: version.size, ModifiedUnixNano: version.modified}
	if err := stream.Send(&clusterpb.PutRequest{Message: &clusterpb.PutRequest_File{File: head}}); err != nil {
		return err
	}
	reply, err := stream.Recv()
	if err != nil || reply.GetUnwanted() {
		return err
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, reply.GetHave()); err != nil {
		return readError(err, version.size)
	}
	buffer := make([]byte, chunk)
	for left := version.size - reply.GetHave(); left > 0; {
		n, err := io.ReadFull(f, buffer[:min(left, chunk)])
		if err != nil {
			return readError(err, version.size)
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

// readError returns the error for a read from a file that had size bytes. It wraps no io.EOF, which streamError takes
// for the end of the stream.
func readError(err error, size int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is shorter now", errChanged)
	}
	return err
}

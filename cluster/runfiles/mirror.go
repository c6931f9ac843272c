package runfiles

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Mirror makes a folder of a run on an executor's disk what it is at the driver: it
// fetches what is lacking or another, and removes what was taken from there and is
// there no more. Used by one goroutine at a time.
type Mirror struct {
	sender *Sender
	number int32
	folder string
	have   map[string]fetched // by path
}

// NewMirror mirrors a folder of the run ("checkpoints") that sender sends.
func NewMirror(sender *Sender, run int32, folder string) *Mirror {
	return &Mirror{sender: sender, number: run, folder: folder, have: map[string]fetched{}}
}

// fetched is a file as it was at the driver, and as it is here since.
type fetched struct {
	size, modified int64
	here           stamp
}

// errMoved says that the driver's files changed while they were fetched.
var errMoved = errors.New("they changed at the driver while they were fetched")

// mirrorTries is how often files are fetched that change meanwhile, one call long.
const mirrorTries = 5

// Pull fetches what has changed. It returns when the executor's folder is what the
// driver's was at a moment after the call; those who read meanwhile find no file that
// names another one before that is there.
func (m *Mirror) Pull(ctx context.Context) error {
	for try := 1; ; try++ {
		err := m.pull(ctx, try == mirrorTries)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errMoved) || try == mirrorTries || ctx.Err() != nil {
			return fmt.Errorf("fetch the run's %s from the driver: %w", m.folder, err)
		}
	}
}

// pull is one try. The driver's list is no picture of one moment: a state file in it may
// be older or newer than the checkpoints beside it, which only the last try puts up with.
func (m *Mirror) pull(ctx context.Context, last bool) error {
	s := m.sender
	s.mu.Lock() // what is fetched must not look like a program's file
	defer s.mu.Unlock()
	list, err := s.client.List(ctx, &clusterpb.ListRequest{Run: m.number, Folder: m.folder})
	if err != nil {
		return err
	}
	files := slices.SortedFunc(slices.Values(list.GetFiles()), func(a, b *clusterpb.FileHead) int { return ByRank(a.GetPath(), b.GetPath()) })
	there := map[string]bool{}
	aside := map[string]string{}
	defer func() {
		for _, part := range aside {
			_ = s.root.Remove(part) // it was given its name, or is of no use
		}
	}()
	var lacking []*clusterpb.FileHead
	for _, head := range files {
		if !strings.HasPrefix(head.GetPath(), s.run+"/"+m.folder+"/") || path.Clean(head.GetPath()) != head.GetPath() {
			return fmt.Errorf("%q is not below %s", head.GetPath(), m.folder)
		}
		there[head.GetPath()] = true
		if m.lacks(head) {
			part := path.Join(s.run, fmt.Sprintf("%s%d", partPrefix, len(aside)))
			aside[head.GetPath()] = part
			if err := m.get(ctx, head, part); err != nil {
				return err
			}
			lacking = append(lacking, head)
		}
	}
	for _, head := range lacking {
		if !last && !m.complete(head.GetPath(), aside[head.GetPath()], there) {
			return errMoved
		}
	}
	for _, head := range lacking {
		if err := m.name(head, aside[head.GetPath()]); err != nil {
			return err
		}
	}
	return m.prune(there)
}

// complete tells whether the checkpoints that a state file names are all there; other
// files name none.
func (m *Mirror) complete(name, part string, there map[string]bool) bool {
	for _, prefix := range m.names(name, part) {
		if !there[prefix+".index"] {
			return false
		}
	}
	return true
}

// names are the checkpoints that a state file names, which lies under another name yet.
func (m *Mirror) names(name, lies string) []string {
	if !NamesOthers(name) {
		return nil
	}
	state, err := m.sender.root.ReadFile(lies)
	if err != nil {
		return nil
	}
	return named(name, state)
}

// lacks tells whether a file is another here than at the driver. What this executor
// sent itself is the same there, time and all.
func (m *Mirror) lacks(head *clusterpb.FileHead) bool {
	info, err := m.sender.root.Lstat(head.GetPath())
	if have, ok := m.have[head.GetPath()]; ok && err == nil && have == (fetched{head.GetSize(), head.GetModifiedUnixNano(), stampOf(info)}) {
		return false // whatever times this disk keeps
	}
	return err != nil || !info.Mode().IsRegular() || info.Size() != head.GetSize() || info.ModTime().UnixNano() != head.GetModifiedUnixNano()
}

// get fetches a file and puts it aside.
func (m *Mirror) get(root context.Context, want *clusterpb.FileHead, part string) (err error) {
	ctx, cancel := context.WithCancelCause(root)
	defer cancel(nil)
	watch := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing came for %v", silence)) })
	defer watch.Stop()
	stream, err := m.sender.client.Get(ctx, &clusterpb.GetRequest{Path: want.GetPath()})
	if err != nil {
		return err
	}
	if err := m.sender.root.MkdirAll(path.Dir(part), 0o700); err != nil {
		return err
	}
	f, err := m.sender.root.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum, size, digest := sha256.New(), int64(0), ""
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			if status.Code(err) == codes.NotFound {
				return errMoved
			}
			return err
		}
		watch.Reset(silence)
		if head := reply.GetFile(); head != nil && (head.GetSize() != want.GetSize() || head.GetModifiedUnixNano() != want.GetModifiedUnixNano()) {
			return errMoved
		}
		if digest == "" {
			digest = reply.GetSha256()
		}
		if size += int64(len(reply.GetData())); size > want.GetSize() {
			return errMoved
		}
		sum.Write(reply.GetData())
		if _, err := f.Write(reply.GetData()); err != nil {
			return err
		}
	}
	if size != want.GetSize() || digest != hex.EncodeToString(sum.Sum(nil)) {
		return fmt.Errorf("%s: %w", want.GetPath(), errMoved)
	}
	return nil
}

// name gives a file that was put aside its name and its time.
func (m *Mirror) name(head *clusterpb.FileHead, part string) error {
	root, modified := m.sender.root, time.Unix(0, head.GetModifiedUnixNano())
	if err := errors.Join(root.MkdirAll(path.Dir(head.GetPath()), 0o700), root.Chtimes(part, modified, modified)); err != nil {
		return err
	}
	if err := root.Rename(part, head.GetPath()); err != nil {
		return err
	}
	info, err := root.Lstat(head.GetPath())
	if err != nil {
		return err
	}
	m.sender.fetched(head.GetPath(), info)
	m.have[head.GetPath()] = fetched{head.GetSize(), head.GetModifiedUnixNano(), stampOf(info)}
	return nil
}

// prune removes what was fetched and is at the driver no more, state files first. What
// a state file here still names stays until another is fetched.
func (m *Mirror) prune(there map[string]bool) error {
	var gone, needed []string
	for name := range m.have {
		if !there[name] {
			gone = append(gone, name)
		} else {
			needed = append(needed, m.names(name, name)...)
		}
	}
	gone = slices.DeleteFunc(gone, func(name string) bool {
		return slices.ContainsFunc(needed, func(prefix string) bool { return ofCheckpoint(name, prefix) })
	})
	slices.SortFunc(gone, func(a, b string) int { return ByRank(b, a) })
	for _, name := range gone {
		if err := m.sender.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		m.sender.forgotten(name)
		delete(m.have, name)
	}
	return nil
}

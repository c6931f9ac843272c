package runfiles

import (
	"cmp"
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
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Mirror makes a folder of a run on an executor's disk equal to the driver's: it fetches
// missing and changed files, and removes files that it fetched or sent and the driver no longer has. It
// is not safe for concurrent use.
type Mirror struct {
	sender *Sender
	number int32
	folder string
	have   map[string]fetched // by path
}

// NewMirror returns a Mirror of a folder, such as "checkpoints", of the run that sender sends.
func NewMirror(sender *Sender, run int32, folder string) *Mirror {
	return &Mirror{sender: sender, number: run, folder: folder, have: map[string]fetched{}}
}

// fetched is a version of a file at the driver, and the local version fetched from it.
type fetched struct {
	size, modified int64
	local          stamp
}

// mirrorTries is how often one Pull fetches files that change meanwhile, mirrorPause the first pause between two tries.
const (
	mirrorTries = 5
	mirrorPause = 200 * time.Millisecond
)

// errMoved reports that the driver's files changed while they were fetched. The last try returns it.
var errMoved = fmt.Errorf("files changed at the driver during each of %d tries", mirrorTries)

// Pull fetches the changes. When it returns, the local folder equals the driver's at some
// moment after the call. During the call, readers find no file that refers to one that is not
// there yet.
func (m *Mirror) Pull(ctx context.Context) error {
	for try := 1; ; try++ {
		err := m.pull(ctx, try == mirrorTries)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errMoved) || try == mirrorTries || ctx.Err() != nil {
			return fmt.Errorf("fetch the run's %s from the driver: %w", m.folder, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(mirrorPause << (try - 1)):
		}
	}
}

// pull is one attempt. The driver's list is not a consistent snapshot: a state file may be
// older or newer than the checkpoints in it. Only the last attempt accepts that.
func (m *Mirror) pull(ctx context.Context, last bool) error {
	s := m.sender
	s.mu.Lock() // Sync must not send the fetched files back
	defer s.mu.Unlock()
	list, err := s.client.List(ctx, &clusterpb.ListRequest{Run: m.number, Folder: m.folder})
	if err != nil {
		return err
	}
	files := slices.SortedFunc(slices.Values(list.GetFiles()),
		func(a, b *clusterpb.FileHead) int { return ByRank(a.GetPath(), b.GetPath()) })
	remote := map[string]bool{}
	temp := map[string]string{}
	defer func() {
		for _, part := range temp {
			_ = s.root.Remove(part) // renamed, or not needed
		}
	}()
	var changed []*clusterpb.FileHead
	for _, head := range files {
		if !strings.HasPrefix(head.GetPath(), s.run+"/"+m.folder+"/") || path.Clean(head.GetPath()) != head.GetPath() {
			return errtext.Fault("the driver offers %q, which is not below %s", head.GetPath(), m.folder)
		}
		remote[head.GetPath()] = true
		if m.outdated(head) {
			part := path.Join(s.run, fmt.Sprintf("%s%d", partPrefix, len(temp)))
			temp[head.GetPath()] = part
			if err := m.get(ctx, head, part); err != nil {
				return err
			}
			changed = append(changed, head)
		}
	}
	for _, head := range changed {
		if !last && !m.complete(head.GetPath(), temp[head.GetPath()], remote) {
			return errMoved
		}
	}
	for _, head := range changed {
		if err := m.install(head, temp[head.GetPath()]); err != nil {
			return err
		}
	}
	return m.prune(remote)
}

// complete reports whether all checkpoints that a state file refers to are in the driver's
// list; true for other files.
func (m *Mirror) complete(name, part string, remote map[string]bool) bool {
	return !slices.ContainsFunc(m.names(name, part), func(prefix string) bool { return !remote[prefix+".index"] })
}

// names returns the checkpoints that the state file name refers to; it is read from the file at
// path.
func (m *Mirror) names(name, path string) []string {
	if !NamesOthers(name) {
		return nil
	}
	info, err := m.sender.root.Lstat(path)
	if err != nil || info.Size() > maxState {
		return nil
	}
	state, err := m.sender.root.ReadFile(path)
	if err != nil {
		return nil
	}
	return named(name, state)
}

// outdated reports whether the local file differs from the driver's. A file that this executor
// sent has the same size and time at the driver.
func (m *Mirror) outdated(head *clusterpb.FileHead) bool {
	info, err := m.sender.root.Lstat(head.GetPath())
	if have, ok := m.have[head.GetPath()]; ok && err == nil &&
		have == (fetched{head.GetSize(), head.GetModifiedUnixNano(), stampOf(info)}) {
		return false // unchanged, whatever time resolution this disk has
	}
	return err != nil || !info.Mode().IsRegular() || info.Size() != head.GetSize() ||
		info.ModTime().UnixNano() != head.GetModifiedUnixNano()
}

// get fetches a file to a temporary name.
func (m *Mirror) get(root context.Context, want *clusterpb.FileHead, part string) (err error) {
	ctx, cancel := context.WithCancelCause(root)
	defer cancel(nil)
	watch := time.AfterFunc(silence,
		func() { cancel(fmt.Errorf("no data of the run's files arrived from the driver for %v", silence)) })
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
		if head := reply.GetFile(); head != nil &&
			(head.GetSize() != want.GetSize() || head.GetModifiedUnixNano() != want.GetModifiedUnixNano()) {
			return errMoved
		}
		digest = cmp.Or(digest, reply.GetSha256())
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

// install renames a fetched file to its name and sets its time.
func (m *Mirror) install(head *clusterpb.FileHead, part string) error {
	root, modified := m.sender.root, time.Unix(0, head.GetModifiedUnixNano())
	if err := errors.Join(root.MkdirAll(path.Dir(head.GetPath()), 0o700),
		root.Chtimes(part, modified, modified)); err != nil {
		return err
	}
	if err := root.Rename(part, head.GetPath()); err != nil {
		return err
	}
	info, err := root.Lstat(head.GetPath())
	if err != nil {
		return err
	}
	m.sender.sent[head.GetPath()] = stampOf(info) // it is the same at the driver, and not sent back
	if NamesOthers(head.GetPath()) {
		m.sender.named[head.GetPath()] = m.names(head.GetPath(), head.GetPath())
	}
	m.have[head.GetPath()] = fetched{head.GetSize(), head.GetModifiedUnixNano(), stampOf(info)}
	return nil
}

// prune removes files, fetched or sent, that the driver no longer has, state files first. It keeps a
// checkpoint that a local state file refers to until a new state file is fetched.
func (m *Mirror) prune(remote map[string]bool) error {
	var obsolete, needed []string
	for name := range m.have {
		if !remote[name] {
			obsolete = append(obsolete, name)
		} else {
			needed = append(needed, m.names(name, name)...)
		}
	}
	for name := range m.sender.sent {
		if _, known := m.have[name]; !known && !remote[name] && strings.HasPrefix(name, m.sender.run+"/"+m.folder+"/") {
			obsolete = append(obsolete, name)
		}
	}
	obsolete = slices.DeleteFunc(obsolete, func(name string) bool {
		return slices.ContainsFunc(needed, func(prefix string) bool { return ofCheckpoint(name, prefix) })
	})
	slices.SortFunc(obsolete, func(a, b string) int { return ByRank(b, a) })
	for _, name := range obsolete {
		if err := m.sender.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		removeEmpty(m.sender.root, path.Dir(name))
		delete(m.sender.sent, name) // the driver has it no more
		delete(m.have, name)
	}
	return nil
}

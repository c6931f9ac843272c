package runfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/rundir"
)

// Keeper is the driver's side: it keeps what executors send on a Disk, and gives it
// out. Its methods may be called from many goroutines.
type Keeper struct {
	disk  Disk
	where string               // --dir, for people
	first func(string) bool    // whether an executor's files count before those of the others
	note  func(warning string) // may be said again with the same text

	mu sync.Mutex
	// guarded by mu
	last    int32                    // the number of the newest run
	owners  map[string]string        // executors, by the path of what they wrote
	sending map[string]chan struct{} // capacity 1; a token is in while an executor puts files
}

// NewKeeper keeps files on disk, which people know as where. first tells which
// executor's files win over another's of the same name: the chief's, or worker 0's.
// note is given one line where people can do something about it.
func NewKeeper(disk Disk, where string, first func(executor string) bool, note func(warning string)) *Keeper {
	return &Keeper{disk: disk, where: where, first: first, note: note, owners: map[string]string{}, sending: map[string]chan struct{}{}}
}

// Allow lets files of the runs up to a number be sent.
func (k *Keeper) Allow(run int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = max(k.last, run)
}

// Sweep removes what was never completed of a run's files. Nobody may be sending any.
func (k *Keeper) Sweep(run int32) error {
	files, err := k.disk.Files(rundir.Name(run))
	if err != nil {
		return fmt.Errorf("look for what was left of files that did not arrive: %w", err)
	}
	for _, f := range files {
		if strings.HasPrefix(path.Base(f.Path), partPrefix) {
			if err := k.disk.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove what was left of a file that did not arrive: %w", err)
			}
		}
	}
	return nil
}

// maxPath bounds a path, in bytes.
const maxPath = 1024

// check refuses a path that is not one of a file that tasks of a run may write.
func (k *Keeper) check(name string) error {
	bad := status.Errorf(codes.InvalidArgument, "%.80q is not a file of a run", name)
	if len(name) > maxPath || !utf8.ValidString(name) || strings.ContainsAny(name, "\x00\\") || path.Clean(name) != name || !filepath.IsLocal(name) {
		return bad
	}
	parts := strings.Split(name, "/")
	run, ok := rundir.Number(parts[0])
	if !ok || len(parts) < 2 || strings.HasPrefix(path.Base(name), partPrefix) {
		return bad
	}
	if parts[1] == rundir.Lines || parts[1] == "run.json" { // the driver's own
		return bad
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if run > k.last {
		return bad
	}
	return nil
}

// wanted tells whether an executor may write a file: nobody has, or it has itself,
// or its files count before those of the others.
func (k *Keeper) wanted(executor, name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	owner, owned := k.owners[name]
	return !owned || owner == executor || k.first(executor)
}

// own notes who wrote a file; "" for nobody.
func (k *Keeper) own(executor, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if executor == "" {
		delete(k.owners, name)
		return
	}
	k.owners[name] = executor
}

// mayRemove tells whether an executor may remove a file: it wrote it, or its files
// count before those of the others.
func (k *Keeper) mayRemove(executor, name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.owners[name] == executor || k.first(executor)
}

// failed is a disk's trouble, told to people and to the executor, which tries again.
func (k *Keeper) failed(name string, err error) error {
	cause := err
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		cause = pathError.Err
	}
	k.note(fmt.Sprintf("files that executors send cannot be kept in %s on the driver's host: %v; they are sent again: make room, or reserve with another --dir", k.where, cause))
	return status.Errorf(codes.ResourceExhausted, "keep %s in %s on the driver's host: %v", name, k.where, cause)
}

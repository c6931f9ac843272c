package runfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// Receiver is the driver's side: it stores the files that executors send and serves them. Its
// methods are safe for concurrent use.
type Receiver struct {
	storage Storage
	where   string               // --dir, for messages
	first   func(string) bool    // whether an executor's files take precedence over those of others
	note    func(warning string) // called with a message for users; the same message may repeat

	mu sync.Mutex
	// guarded by mu
	last    int32 // number of the newest run
	resumed resumed
	owners  map[string]string        // executor that wrote a file, by path
	sending map[string]chan struct{} // capacity 1; holds a token while an executor puts files
}

// NewReceiver returns a Receiver that stores files in storage; where names it in messages.
// first reports whether an executor's files take precedence over those of the same name: the
// chief's, or worker 0's. note is called with messages for users.
func NewReceiver(storage Storage, where string, first func(executor string) bool, note func(warning string)) *Receiver {
	return &Receiver{
		storage: storage, where: where, first: first, note: note, owners: map[string]string{},
		sending: map[string]chan struct{}{},
	}
}

// Allow accepts files of runs up to a number.
func (r *Receiver) Allow(run int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last, run)
}

// Sweep removes incomplete files of a run. No executor may be sending files of the run.
func (r *Receiver) Sweep(run int32) error {
	files, err := r.storage.Files(rundir.Name(run))
	if err != nil {
		return fmt.Errorf("look for incomplete files of run %d: %w", run, err)
	}
	for _, f := range files {
		if strings.HasPrefix(path.Base(f.Path), partPrefix) {
			if err := r.storage.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove an incomplete file of run %d: %w", run, err)
			}
		}
	}
	return nil
}

// maxPath is the maximum length of a path in bytes.
const maxPath = 1024

// check returns an error if tasks of a run must not write the path.
func (r *Receiver) check(name string) error {
	bad := protocolError("%.80q is not a file of a run", name)
	if Refusal(name) != "" || path.Clean(name) != name || !filepath.IsLocal(name) {
		return bad
	}
	parts := strings.Split(name, "/")
	run, ok := rundir.Number(parts[0])
	if !ok || len(parts) < 2 || strings.HasPrefix(path.Base(name), partPrefix) {
		return bad
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if run > r.last {
		return bad
	}
	return nil
}

// wanted reports whether an executor may write a file: no other executor has written it, or its
// files take precedence.
func (r *Receiver) wanted(executor, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner, owned := r.owners[name]
	return !owned || owner == executor || r.first(executor)
}

// own records the executor that wrote a file; "" removes the record.
func (r *Receiver) own(executor, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if executor == "" {
		delete(r.owners, name)
		return
	}
	r.owners[name] = executor
}

// mayRemove reports whether an executor may remove a file: it wrote the file, or its files take
// precedence.
func (r *Receiver) mayRemove(executor, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owners[name] == executor || r.first(executor)
}

// failed reports a storage error to users and returns it for the executor, which retries.
func (r *Receiver) failed(name string, err error) error {
	cause := err
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		cause = pathError.Err
	}
	r.note(fmt.Sprintf("files from executors cannot be stored in %s on the driver's host: %v; they are sent again until "+
		"2 minutes after the task's end: free space there, or correct what else prevents writing", r.where, cause))
	return status.Errorf(codes.ResourceExhausted, "store %s in %s on the driver's host: %v", name, r.where, cause)
}

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// Times of the synchronisation of run folders with the driver.
const (
	filesInterval    = time.Second      // between two rounds of sending and fetching
	filesRetry       = time.Second      // after a failed round at the end of a task
	filesGiveUp      = 2 * time.Minute  // without progress: the missing files are then reported
	filesReleaseWait = 5 * time.Second  // for the remaining files at a release
	fetchFiles       = 30 * time.Minute // for the checkpoints that a launch needs
)

// ownPrefix is the prefix of the name of an agent's own folder.
const ownPrefix = "own-"

// ownFiles are the run folders on an executor that does not share the driver's disk. Files of
// tasks are sent to the driver, and checkpoints fetched from it.
type ownFiles struct {
	// fixed
	dir      string
	root     *os.Root
	client   clusterpb.CoordinatorClient
	executor string
	log      *slog.Logger
	work     *sync.WaitGroup
	send     func(*clusterpb.AgentMessage)

	mu sync.Mutex
	// guarded by mu
	runs map[int32]*runFiles
}

// ownFolder is the agent's own folder on its host, locked while the agent runs and removed at
// its end.
type ownFolder struct {
	dir  string
	lock *os.File
}

// openOwnFolder creates the folder, and removes those of agents that have died.
func openOwnFolder(parent, incarnation string) (*ownFolder, error) {
	left, _ := filepath.Glob(filepath.Join(parent, ownPrefix+"*"))
	for _, dir := range left {
		if f, err := os.Open(dir); err == nil {
			if lockfile.Try(f, lockfile.Exclusive) == nil {
				os.RemoveAll(dir)
			}
			f.Close()
		}
	}
	o := &ownFolder{dir: filepath.Join(parent, ownPrefix+incarnation)}
	aside, err := os.MkdirTemp(parent, ".own-") // renamed once it is locked, so that other agents do not remove it
	if err == nil {
		o.lock, err = os.Open(aside)
	}
	if err == nil {
		err = lockfile.Try(o.lock, lockfile.Exclusive)
	}
	if err == nil {
		err = os.Rename(aside, o.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make a folder for the files of runs in %s: %w", parent, err)
	}
	return o, nil
}

// close removes the folder.
func (o *ownFolder) close() {
	os.RemoveAll(o.dir)
	o.lock.Close()
}

// copies is the folder for ctx.local_copy.
func (o *ownFolder) copies() string { return filepath.Join(o.dir, "copies") }

// openFiles creates the agent's own folder and, if the driver's disk is not shared, ownFiles in
// it.
func (a *Agent) openFiles(client clusterpb.CoordinatorClient) error {
	parent := cmp.Or(a.cfg.GetFolders().GetWorkDir(), a.cfg.GetFolders().GetRuntimeDir())
	var err error
	if a.disk.own, err = openOwnFolder(parent, a.self.incarnation); err != nil || a.cfg.GetFolders().GetSharedDir() != "" {
		return err
	}
	root, err := os.OpenRoot(a.disk.own.dir)
	if err != nil {
		return fmt.Errorf("open the folder of the runs' files: %w", err)
	}
	a.disk.files = &ownFiles{
		dir: a.disk.own.dir, root: root, client: client, executor: a.cfg.GetIdentity().GetExecutorId(), log: a.log,
		work: &a.work, send: a.link.send, runs: map[int32]*runFiles{},
	}
	return nil
}

// runFiles is the folder of one run and its synchronisation.
type runFiles struct {
	own    *ownFiles
	id     int32
	sender *runfiles.Sender
	events *fileSync

	pulling sync.Mutex
	mirror  *runfiles.Mirror // guarded by pulling

	last lastTask // guarded by own.mu
}

// lastTask is the state of the files of a run's newest task here.
type lastTask struct {
	launch *clusterpb.Launch
	over   <-chan struct{}      // closed when its process has ended
	done   <-chan struct{}      // closed when its files were sent or given up
	sent   *clusterpb.FilesSent // the result, set before done is closed
	kept   bool                 // files are kept, because sending them failed
}

// launch returns a copy of l with the run's folders on this disk, and starts synchronising
// them.
func (o *ownFiles) launch(ctx context.Context, l *clusterpb.Launch) (*clusterpb.Launch, *taskFiles) {
	l = proto.CloneOf(l)
	d := l.GetDirectories()
	if d == nil {
		d = &clusterpb.Directories{}
		l.Directories = d
	}
	there, here := d.GetDir(), rundir.Dir(o.dir, l.GetRun())
	for _, dir := range []*string{&d.Logs, &d.Checkpoints, &d.Export} {
		if rest, below := strings.CutPrefix(*dir, there); below && filepath.IsLocal(strings.TrimPrefix(rest, "/")) {
			*dir = filepath.Join(here, rest)
		}
	}
	d.Dir = here
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.runs[l.GetRun()]
	if r == nil {
		sender := runfiles.NewSender(o.client, o.root, l.GetRun())
		r = &runFiles{
			own: o, id: l.GetRun(), sender: sender, events: newFileSync(o.client, o.executor, here),
			mirror: runfiles.NewMirror(sender, l.GetRun(), "checkpoints"),
		}
		o.runs[l.GetRun()] = r
	}
	t := &taskFiles{runFiles: r, launch: l, before: r.last.done, over: make(chan struct{}), done: make(chan struct{})}
	r.last = lastTask{launch: l, over: t.over, done: t.done}
	o.work.Go(func() { t.syncToEnd(ctx) })
	return l, t
}

// settle waits until the files of earlier tasks were sent or given up, then removes the folders
// of other runs that were sent completely.
func (o *ownFiles) settle(ctx context.Context, next int32) {
	for _, r := range o.lastTasks() {
		select {
		case <-r.done:
		case <-ctx.Done():
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, r := range o.runs {
		if id == next || r.last.sent == nil || r.last.kept {
			continue // unsent files are kept while the agent runs
		}
		if err := o.root.RemoveAll(rundir.Name(id)); err != nil {
			o.log.Warn("files of an old run stay on this executor's disk", "run", id, "error", err)
		}
		delete(o.runs, id)
	}
}

// flush waits, at most for limit, for the files of ended tasks.
func (o *ownFiles) flush(limit time.Duration) {
	end := time.Now().Add(limit)
	for _, r := range o.lastTasks() {
		if closed(r.over) {
			waitFor(r.done, time.Until(end))
		}
	}
}

// lastTasks returns the newest task of every run.
func (o *ownFiles) lastTasks() []lastTask {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []lastTask
	for _, r := range o.runs {
		all = append(all, r.last)
	}
	return all
}

// sentMessages returns the results to repeat to a driver after a reconnection. The caller holds
// mu until the stream is open, so that no result is sent in between.
func (o *ownFiles) sentMessages() []*clusterpb.AgentMessage {
	var said []*clusterpb.AgentMessage
	for _, r := range o.runs {
		if r.last.sent != nil {
			said = append(said, &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_FilesSent{FilesSent: r.last.sent}})
		}
	}
	return said
}

// unsent returns the launches whose files are not all at the driver, for one that knows nothing of them. The caller
// holds mu until the stream is open.
func (o *ownFiles) unsent() []*clusterpb.RunningTask {
	var found []*clusterpb.RunningTask
	for id, r := range o.runs {
		if l := r.last.launch; r.last.sent == nil && l != nil {
			found = append(found, &clusterpb.RunningTask{Run: id, Attempt: l.GetAttempt(), Task: l.GetTask()})
		}
	}
	return found
}

// taskFiles is a run's folder for one task.
type taskFiles struct {
	*runFiles
	launch *clusterpb.Launch
	before <-chan struct{} // closed when the previous task's files were sent; nil
	over   chan struct{}   // closed when the process has ended
	once   sync.Once       // closes over
	done   chan struct{}   // closed when its files were sent or given up
}

// fetchCheckpoints fetches the checkpoints from which the task continues, or that earlier tasks
// wrote.
func (t *taskFiles) fetchCheckpoints(ctx context.Context) error {
	if t.before != nil {
		select {
		case <-t.before:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !t.launch.GetResumed() && !t.launch.GetFollows() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchFiles)
	defer cancel()
	return t.pull(ctx)
}

func (r *runFiles) pull(ctx context.Context) error {
	r.pulling.Lock()
	defer r.pulling.Unlock()
	return r.mirror.Pull(ctx)
}

// readsCheckpoints returns whether a task reads checkpoints that others save while it runs,
// instead of training. Tracked roles train, except the evaluator.
func (t *taskFiles) readsCheckpoints() bool {
	switch role, _, _ := strings.Cut(t.launch.GetTask(), ":"); role {
	case "chief", "master", "worker", "ps":
		return false
	case "evaluator":
		return true
	}
	return t.launch.GetRoleKind() != "tracked"
}

// processGone records that the task's process has ended. The channel is closed when its files
// were sent or given up.
func (t *taskFiles) processGone() <-chan struct{} {
	t.once.Do(func() { close(t.over) })
	return t.done
}

// syncToEnd sends the task's files until it ends, then the rest, and reports the result.
func (t *taskFiles) syncToEnd(ctx context.Context) {
	defer close(t.done)
	if t.before != nil {
		select {
		case <-t.before:
		case <-ctx.Done():
			return
		}
	}
	var events sync.WaitGroup
	events.Go(func() { t.events.run(ctx, t.over) })
	t.syncWhileRunning(ctx)
	events.Wait()
	missing, err := t.syncRest(ctx)
	said := &clusterpb.FilesSent{Run: t.id, Attempt: t.launch.GetAttempt(), Task: t.launch.GetTask(), Missing: missing}
	if err != nil {
		said.Error = err.Error()
	}
	t.own.mu.Lock()
	defer t.own.mu.Unlock()
	t.last.sent, t.last.kept = said, len(missing) > 0 && !errors.Is(err, runfiles.ErrRefused)
	t.own.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_FilesSent{FilesSent: said}})
}

// syncWhileRunning sends files while the task runs, and fetches checkpoints if it reads them.
func (t *taskFiles) syncWhileRunning(ctx context.Context) {
	ticker := time.NewTicker(filesInterval)
	defer ticker.Stop()
	var last string
	for {
		select {
		case <-t.over:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := t.sender.Sync(ctx, false, func() {})
		if t.readsCheckpoints() {
			err = errors.Join(err, t.pull(ctx))
		}
		if err != nil && err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			t.own.log.Warn("files of the run could not be copied; it is tried again", "run", t.id, "task", t.launch.GetTask(),
				"error", clusterpb.Plain(err))
		}
	}
}

// syncRest sends all remaining files. It gives up after filesGiveUp without progress.
func (t *taskFiles) syncRest(ctx context.Context) (missing []string, err error) {
	last := time.Now()
	moved := func() { last = time.Now() }
	for {
		err := errors.Join(t.events.rounds(ctx), t.sender.Sync(ctx, true, func() { moved() }))
		if err == nil {
			return t.sender.Refused()
		}
		if status.Code(err) == codes.ResourceExhausted {
			moved = func() {} // data sent to a full disk is no progress
		}
		if code := status.Code(err); ctx.Err() != nil || time.Since(last) > filesGiveUp || code == codes.Unimplemented ||
			code == codes.InvalidArgument {
			refused, _ := t.sender.Refused()
			return slices.Concat(t.sender.Left(), t.events.left(), refused), err
		}
		t.own.log.Warn("files of a task that has ended could not be sent to the driver; it is tried again", "run", t.id,
			"error", clusterpb.Plain(err))
		select {
		case <-ctx.Done():
		case <-time.After(filesRetry):
		}
	}
}

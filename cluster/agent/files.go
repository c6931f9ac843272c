package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lockfile"
	"github.com/tfcluster/tfcluster/cluster/rundir"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// How an executor's files come to the driver and back.
const (
	filesInterval = time.Second      // between two looks for what is to be sent or fetched
	filesRetry    = time.Second      // after a round that failed at the end of a task
	filesGiveUp   = 2 * time.Minute  // nothing went through: what is left is named and given up
	filesFarewell = 5 * time.Second  // for what is left at a release
	fetchFiles    = 30 * time.Minute // for the checkpoints that a launch takes up
)

// ownPrefix begins the name of an agent's own folder.
const ownPrefix = "own-"

// ownFiles are the folders of the runs on an executor that does not share the driver's
// disk. What tasks leave there is sent to the driver, what it has is fetched.
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

// ownFolder is an agent's own among those of its host: locked as long as the agent is
// there, and removed at its end.
type ownFolder struct {
	dir  string
	lock *os.File
}

// openOwnFolder makes the folder, and removes those of agents that are no more.
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
	aside, err := os.MkdirTemp(parent, ".own-") // nobody takes it for one left behind before it is locked
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
		return nil, fmt.Errorf("make the agent's own folder in %s: %w", parent, err)
	}
	return o, nil
}

// close removes the folder. Nobody may use it any more.
func (o *ownFolder) close() {
	os.RemoveAll(o.dir)
	o.lock.Close()
}

// copies is where ctx.local_copy keeps what it copies.
func (o *ownFolder) copies() string { return filepath.Join(o.dir, "copies") }

// openFiles makes the agent's own folder and, where the driver's disk is not shared, is
// ready for the runs.
func (a *Agent) openFiles(client clusterpb.CoordinatorClient) error {
	parent := a.cfg.GetFolders().GetWorkDir()
	if parent == "" {
		parent = a.cfg.GetFolders().GetRuntimeDir()
	}
	var err error
	if a.disk.own, err = openOwnFolder(parent, a.self.incarnation); err != nil || a.cfg.GetFolders().GetSharedDir() != "" {
		return err
	}
	root, err := os.OpenRoot(a.disk.own.dir)
	if err != nil {
		return fmt.Errorf("open the folder of the runs' files: %w", err)
	}
	a.disk.files = &ownFiles{
		dir: a.disk.own.dir, root: root, client: client, executor: a.cfg.GetIdentity().GetExecutorId(), log: a.log, work: &a.work, send: a.link.send,
		runs: map[int32]*runFiles{},
	}
	return nil
}

// runFiles are one run's.
type runFiles struct {
	own    *ownFiles
	id     int32
	sender *runfiles.Sender
	events *fileSync

	pulling sync.Mutex
	mirror  *runfiles.Mirror // guarded by pulling

	last lastTask // guarded by own.mu
}

// lastTask is how it stands with what a run's newest task here leaves.
type lastTask struct {
	over <-chan struct{}      // closed when its process is gone
	done <-chan struct{}      // closed when what it left was sent, or given up
	said *clusterpb.FilesSent // once done
}

// launch gives a launch the run's folders on this disk, and starts to look after them.
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
	r.last = lastTask{over: t.over, done: t.done}
	o.work.Go(func() { t.attend(ctx) })
	return l, t
}

// settle waits until what earlier tasks left was sent or given up, then makes room
// for a run: the folders of others that have arrived are removed.
func (o *ownFiles) settle(ctx context.Context, next int32) {
	for _, r := range o.all() {
		select {
		case <-r.done:
		case <-ctx.Done():
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, r := range o.runs {
		if id == next || r.last.said == nil || len(r.last.said.GetMissing()) > 0 {
			continue // what did not arrive stays as long as the agent
		}
		if err := o.root.RemoveAll(rundir.Name(id)); err != nil {
			o.log.Warn("remove the files of a run", "run", id, "error", err)
		}
		delete(o.runs, id)
	}
}

// flush waits, shortly, for what is being sent.
func (o *ownFiles) flush(limit time.Duration) {
	end := time.Now().Add(limit)
	for _, r := range o.all() {
		select {
		case <-r.over:
			waitFor(r.done, time.Until(end))
		default:
		}
	}
}

// all are the newest tasks of every run.
func (o *ownFiles) all() []lastTask {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []lastTask
	for _, r := range o.runs {
		all = append(all, r.last)
	}
	return all
}

// again is what a driver that comes back must hear. Caller holds mu until the stream is
// open, so that nothing is said in between.
func (o *ownFiles) again() []*clusterpb.AgentMessage {
	var said []*clusterpb.AgentMessage
	for _, r := range o.runs {
		if r.last.said != nil {
			said = append(said, &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_FilesSent{FilesSent: r.last.said}})
		}
	}
	return said
}

// taskFiles are a run's while one task of it is here.
type taskFiles struct {
	*runFiles
	launch *clusterpb.Launch
	before <-chan struct{} // closed when what the task before left was sent; nil for the first
	over   chan struct{}   // closed when the process is gone
	once   sync.Once       // closes over
	done   chan struct{}   // closed when what it left was sent, or given up
}

// ready fetches the checkpoints that the task takes up, or that were made before it.
func (t *taskFiles) ready(ctx context.Context) error {
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

// watches returns whether a task reads what others save while it runs: it does not train.
// Tracked roles train, whatever they are called, but for an evaluator.
func (t *taskFiles) watches() bool {
	switch role, _, _ := strings.Cut(t.launch.GetTask(), ":"); role {
	case "chief", "master", "worker", "ps":
		return false
	case "evaluator":
		return true
	}
	return t.launch.GetRoleKind() != "tracked"
}

// left says that the task's process is gone. The channel is closed when what it left
// has been sent, or given up.
func (t *taskFiles) left() <-chan struct{} {
	t.once.Do(func() { close(t.over) })
	return t.done
}

// attend sends what the task writes until it ends, and then the rest.
func (t *taskFiles) attend(ctx context.Context) {
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
	t.alongside(ctx)
	events.Wait()
	missing, err := t.rest(ctx)
	said := &clusterpb.FilesSent{Run: t.id, Attempt: t.launch.GetAttempt(), Task: t.launch.GetTask(), Missing: missing}
	if err != nil {
		said.Error = err.Error()
	}
	t.own.mu.Lock()
	defer t.own.mu.Unlock()
	t.last.said = said
	t.own.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_FilesSent{FilesSent: said}})
}

// alongside sends, and fetches for those who watch, while the task runs.
func (t *taskFiles) alongside(ctx context.Context) {
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
		if t.watches() {
			err = errors.Join(err, t.pull(ctx))
		}
		if err != nil && err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			t.own.log.Warn("the run's files", "run", t.id, "error", err)
		}
	}
}

// rest sends all that is left. It tries for as long as something goes through now
// and then.
func (t *taskFiles) rest(ctx context.Context) (missing []string, err error) {
	last := time.Now()
	moved := func() { last = time.Now() }
	for {
		err := errors.Join(t.events.rounds(ctx), t.sender.Sync(ctx, true, func() { moved() }))
		if err == nil {
			return nil, nil
		}
		if status.Code(err) == codes.ResourceExhausted {
			moved = func() {} // what goes to a full disk is no progress
		}
		if ctx.Err() != nil || time.Since(last) > filesGiveUp || status.Code(err) == codes.Unimplemented {
			return append(t.sender.Left(), t.events.left()...), err
		}
		t.own.log.Warn("what the task left is sent again", "run", t.id, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(filesRetry):
		}
	}
}

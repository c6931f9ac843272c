package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/manifest"
)

// Start implements the Control service.
func (c *control) Start(req *clusterpb.StartRequest, stream grpc.ServerStreamingServer[clusterpb.StartUpdate]) error {
	ctx := stream.Context()
	req.Options = cmp.Or(req.GetOptions(), &clusterpb.RunOptions{})
	if req.GetReplace() {
		if err := c.endActive(ctx); err != nil {
			return err
		}
	}
	if err := c.awaitTakeover(ctx, req, stream.Send); err != nil {
		return err
	}
	told := 0
	if err := c.call(ctx, func() { told = c.notes.total() }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	rec, err := c.startRun(ctx, req)
	if err != nil {
		return err
	}
	return updates(c.Coordinator, stream, func(u *clusterpb.StartUpdate) bool {
		u.Run, u.Entered = c.status(rec), rec.entered
		u.Notes, told = c.notes.since(told), c.notes.total()
		rec.shown.notesShown = max(rec.shown.notesShown, told)
		if rec.over.IsZero() {
			return u.GetEntered()
		}
		u.Run = c.statusWithValues(rec) // no later update has them
		u.Failure = u.Run.GetFailure()
		u.Entered = u.Failure == nil
		return true
	}, func(ctx context.Context, u *clusterpb.StartUpdate) {
		c.awaitFlush(ctx)
		if u.GetRun().GetEndedUnix() != 0 {
			if u.GetFailure() == nil {
				c.awaitFiles(ctx, u.GetRun().GetId())
			}
			_ = c.awaitLines(ctx, u.GetRun(), nil) // without a function it returns no error
			if u.GetFailure() == nil {
				c.deliver(ctx, u.GetRun().GetId())
			}
		}
	})
}

// flushWait bounds how long a client waits until its run is durable: a slow file system must
// not hide that the run has started.
const flushWait = 5 * time.Second

// awaitFlush waits until a later driver would know the run.
func (c *Coordinator) awaitFlush(ctx context.Context) {
	if c.cfg.Hooks.Flush == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	_ = c.cfg.Hooks.Flush(ctx) // errors are reported by the hook
}

func (c *control) endActive(ctx context.Context) error {
	return c.until(ctx, func() bool {
		c.handle(lifecycle.StopRequested{Grace: 2 * time.Second, Reason: "replaced by another start"})
		return !c.lc.Busy()
	}, nil)
}

// startRun creates the run's folders and record and passes it to the lifecycle. Checkpoints of
// older runs may be many and large: they are searched and copied outside the loop.
func (c *Coordinator) startRun(ctx context.Context, req *clusterpb.StartRequest) (*record, error) {
	return c.startRunAs(ctx, req, 0)
}

// startRunAs is startRun for a run that continues another one, unless that is 0.
func (c *Coordinator) startRunAs(ctx context.Context, req *clusterpb.StartRequest, continues int32) (*record, error) {
	if req.GetOptions().GetResume() != "" {
		c.awaitFiles(ctx, 0) // the previous run's checkpoints may still be arriving
	}
	plan, err := ask(ctx, &c.eventLoop, func() (*runPlan, error) { return c.plan(req) })
	if err != nil {
		return nil, err
	}
	err = plan.chooseCheckpoints(&c.files)
	if err == nil {
		err = c.files.folders(ctx, plan)
	}
	if err == nil {
		err = c.importFiles(ctx, plan)
	}
	if err != nil {
		c.discard(plan) // first: the next plan has the same number
		c.post(func() { c.runs.planning = false })
		return nil, err
	}
	return c.beginRun(ctx, plan, continues)
}

// beginRun starts a planned run. If the cluster is being released, it drops the plan and the run's folder: nothing
// would write a record there.
func (c *Coordinator) beginRun(ctx context.Context, plan *runPlan, continues int32) (*record, error) {
	// Independent of the client's context: a plan is either started or dropped.
	rec, err := ask(context.WithoutCancel(ctx), &c.eventLoop, func() (*record, error) {
		c.runs.planning = false
		if c.lc.State() != lifecycle.Ready {
			return nil, status.Error(codes.FailedPrecondition, "the cluster is being released: reserve another")
		}
		plan.status.Continues = continues
		for _, text := range plan.notes {
			c.note(text, true)
		}
		return c.startPlanned(plan), nil
	})
	if err != nil {
		c.discard(plan)
		return nil, err
	}
	return rec, nil
}

// runPlan is a run that is being prepared.
type runPlan struct {
	req    *clusterpb.StartRequest
	status *clusterpb.RunStatus
	resume []candidate          // the first one with checkpoints is from
	from   *clusterpb.RunStatus // from whose checkpoints it resumes
	notes  []string             // about its checkpoints
	given  []*clusterpb.Shipped // files for the tasks' working directories
	made   bool                 // the run's folder did not exist before
}

// candidate is a run whose checkpoints --resume may mean.
type candidate struct {
	status *clusterpb.RunStatus
	own    bool // of this cluster
}

// plan checks whether a start is possible and prepares it. Loop only.
func (c *Coordinator) plan(req *clusterpb.StartRequest) (*runPlan, error) {
	switch {
	case c.reserved.answer.GetFailure() != nil:
		return nil, status.Error(codes.FailedPrecondition, c.reserved.answer.GetFailure().GetSummary())
	case c.lc.State() == lifecycle.Reserving:
		return nil, status.Errorf(codes.FailedPrecondition,
			"the reservation is not complete: %s; reserve with the same options waits for it", c.lc.Missing())
	case c.lc.State() != lifecycle.Ready:
		return nil, status.Error(codes.FailedPrecondition, "the cluster is being released: reserve another")
	case c.runs.planning:
		return nil, status.Errorf(codes.FailedPrecondition,
			"run %d is about to begin: wait for it, stop it, or start with --replace", c.runs.lastRun+1)
	case c.lc.Busy():
		return nil, status.Errorf(codes.FailedPrecondition, "run %d is active: wait for it, stop it, or start with --replace",
			c.runs.lastRun)
	}
	if req.GetAgain() {
		if c.runs.program == nil {
			return nil, status.Error(codes.FailedPrecondition,
				"--again: nothing has been started in this cluster yet: name a program")
		}
		req = again(c.runs.program, req)
	}
	if req.GetProgram().GetKind() == clusterpb.Program_KIND_UNSPECIFIED &&
		!cluster.CommandsOnly(c.cfg.Request.GetRoles()) {
		return nil, status.Error(codes.InvalidArgument, "there is no program to start: name one")
	}
	if _, err := c.network(req.GetOptions()); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	resume, err := c.runs.candidates(req.GetOptions().GetResume())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	id := c.runs.lastRun + 1
	st := &clusterpb.RunStatus{
		Id: id, State: lifecycle.RunWaiting.String(), Program: cmp.Or(req.GetProgram().GetName(), "commands"),
		Words: manifest.RedactWords(wordsOf(req.GetProgram())), StartedUnix: time.Now().Unix(),
		MaxRestarts: req.GetOptions().GetMaxRestarts(), ClusterId: c.cfg.Authority.ID(), Ranks: c.files.ranks,
	}
	c.files.setPaths(st)
	c.runs.planning = true
	return &runPlan{req: req, status: st, resume: resume}, nil
}

// chooseCheckpoints sets from to the first candidate that has checkpoints.
func (p *runPlan) chooseCheckpoints(f *files) error {
	which := p.req.GetOptions().GetResume()
	if which == "" {
		return nil
	}
	for _, r := range p.resume {
		has, err := f.hasCheckpoints(r.status)
		if err != nil {
			return status.Errorf(codes.FailedPrecondition, "look for the checkpoints of run %d: %v", r.status.GetId(), err)
		}
		if !has {
			continue
		}
		p.from = r.status
		p.status.ResumedFrom = fmt.Sprintf("run %d", p.from.GetId())
		if !r.own {
			p.status.ResumedFrom += " of an earlier cluster"
		}
		return nil
	}
	if which == "last" {
		return status.Errorf(codes.InvalidArgument, "--resume: no run in %s has left a checkpoint; "+noCheckpoint, f.Dir)
	}
	return status.Errorf(codes.InvalidArgument, "--resume=%d: run %d has left no checkpoint; "+
		noCheckpoint, p.resume[0].status.GetId(), p.resume[0].status.GetId())
}

// wordsOf returns a program's arguments.
func wordsOf(p *clusterpb.Program) []string {
	if p.GetKind() == clusterpb.Program_COMMAND {
		return p.GetWords()[min(1, len(p.GetWords())):]
	}
	return p.GetWords()
}

// again returns the last start with this one's options. Mode, epochs and working directory are
// the last start's; the environment is the last one's with this one's on top.
func again(last, req *clusterpb.StartRequest) *clusterpb.StartRequest {
	r, o, was := proto.CloneOf(last), proto.CloneOf(req.GetOptions()), last.GetOptions()
	o.Mode, o.Epochs, o.WorkingDir = was.GetMode(), was.GetEpochs(), was.GetWorkingDir()
	o.Env = merged(was.GetEnv(), o.GetEnv())
	r.Options, r.Given, r.Git = o, req.GetGiven(), req.GetGit()
	return r
}

// untilDone is a file system that opens no more files once its context is done.
type untilDone struct {
	ctx context.Context
	fs.FS
}

// Open implements fs.FS.
func (u untilDone) Open(name string) (fs.File, error) {
	if err := u.ctx.Err(); err != nil {
		return nil, err
	}
	return u.FS.Open(name)
}

// ReadLink implements fs.ReadLinkFS, so that links are copied as links.
func (u untilDone) ReadLink(name string) (string, error) { return fs.ReadLink(u.FS, name) }

// Lstat implements fs.ReadLinkFS.
func (u untilDone) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(u.FS, name) }

// startPlanned starts the planned run. Loop only.
func (c *Coordinator) startPlanned(p *runPlan) *record {
	clear(c.runs.blobs) // of the last run; --again has its own
	program := p.req.GetProgram()
	for _, b := range []*clusterpb.Blob{program.GetBody(), program.GetArgs(), program.GetModules()} {
		c.runs.addBlob(b)
	}
	c.runs.program, c.runs.given = p.req, p.given
	c.runs.lastRun = p.status.GetId()
	c.files.receiver.Allow(c.runs.lastRun)
	rec := newRecord(p.status)
	rec.manifests.run = c.manifestOf(p)
	rec.shown.notesShown, rec.shown.notesAtStart = c.notes.total(), c.notes.total()
	c.forgetEnded()
	c.runs.records = append(c.runs.records, rec)
	c.clients.detached = false
	if all := applications(c.reserved.alloc); len(all) > 0 {
		rec.status.Allocation = all[len(all)-1].ID
	}
	c.writeRecord(rec)
	if c.cfg.Hooks.SaveStart != nil && p.req.GetOptions().GetMaxRestarts() > 0 && c.cfg.Begin == nil {
		c.cfg.Hooks.SaveStart(c.runs.lastRun, p.req)
	}
	c.saveState()
	c.handle(lifecycle.StartRequested{Spec: lifecycle.RunSpec{ID: c.runs.lastRun, Options: p.req.GetOptions()}})
	return rec
}

// noCheckpoint is advice for a start without a checkpoint to resume from.
const noCheckpoint = "start without --resume, and save in ctx.checkpoint_dir, " +
	"as keras.callbacks.BackupAndRestore(ctx.checkpoint_dir) does"

// candidates returns the runs that --resume may mean, the preferred one first. Loop only.
func (r *runs) candidates(which string) ([]candidate, error) {
	if which == "" {
		return nil, nil
	}
	if which == "last" {
		var all []candidate
		for _, rec := range slices.Backward(r.records) {
			all = append(all, candidate{rec.status, r.isOwn(rec)})
		}
		return all, nil
	}
	n, err := strconv.Atoi(which)
	if err != nil {
		return nil, fmt.Errorf("--resume=%s is not a run: give the number of a run, which history shows, or last", which)
	}
	rec := r.find(int32(n))
	if rec == nil || n == 0 {
		return nil, fmt.Errorf("--resume=%d: there is no run %d; the last one is run %d, and history shows all", n,
			n, r.lastRun)
	}
	return []candidate{{rec.status, r.isOwn(rec)}}, nil
}

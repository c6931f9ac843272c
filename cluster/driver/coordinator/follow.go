package coordinator

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
)

// follower is a client's stream of a run's new lines and notes.
type follower struct {
	run   int32
	since logstore.Position // earlier lines are read from the store
	mu    sync.Mutex
	// guarded by mu
	merge *logstore.Merger  // for a cell
	raw   []*clusterpb.Line // for logs -f
	query *logstore.Query   // of raw
	bars  logstore.Bars     // of raw
	notes []*clusterpb.Note
	told  int // notes returned by take, counted like notes.total
	// Lines that did not fit into raw, by task: the number of the first, and the one after the last. They are read
	// from the store.
	from, until logstore.Position
}

func (f *follower) lines(lines []*clusterpb.Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.merge != nil {
		f.merge.Add(lines)
		return
	}
	for _, l := range lines {
		switch {
		case len(f.until) > 0 || len(f.raw) >= followBuffer:
			f.passOver(l)
		case f.query.Match(l) && f.bars.Passes(l):
			f.raw = append(f.raw, l)
		}
	}
}

// passOver leaves a line, and each later one, to be read from the store. The caller holds mu.
func (f *follower) passOver(l *clusterpb.Line) {
	if f.until == nil {
		f.from, f.until = logstore.Position{}, logstore.Position{}
	}
	if _, known := f.from[l.GetTask()]; !known {
		f.from[l.GetTask()] = l.GetSeq()
	}
	f.until[l.GetTask()] = l.GetSeq() + 1
}

// followBuffer bounds the lines held for a slow reader of logs -f.
const followBuffer = 20_000

func (f *follower) note(n *clusterpb.Note) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.notes) < notesKept { // more are only there if nobody reads
		f.notes = append(f.notes, n)
	}
}

// takeRaw returns the lines for logs -f, and the positions between which the lines after them are
// read from the store; nil: none.
func (f *follower) takeRaw() (lines []*clusterpb.Line, from, until logstore.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lines, from, until = f.bars.Last(f.raw), f.from, f.until
	f.raw, f.from, f.until = nil, nil, nil
	return lines, from, until
}

func (f *follower) take(end bool) (*clusterpb.Lines, []*clusterpb.Note) {
	f.mu.Lock()
	defer f.mu.Unlock()
	notes := f.notes
	f.notes = nil
	f.told += len(notes)
	return f.merge.Take(end), notes
}

// follow registers a follower for new lines; earlier ones are read from the store up to its
// position.
func (c *Coordinator) follow(f *follower) (leave func()) {
	since, leaveStore := c.store.Subscribe(f.run, f.lines)
	f.since = since
	leaveNotes := register(&c.subs, c.subs.followers, f) // for new notes
	return func() {
		leaveStore()
		leaveNotes()
	}
}

// followTick is the interval of a cell's updates.
const followTick = 100 * time.Millisecond

// Follow implements the Control service.
func (c *control) Follow(req *clusterpb.FollowRequest, stream grpc.ServerStreamingServer[clusterpb.RunUpdate]) error {
	ctx := stream.Context()
	var rec *record
	var st *clusterpb.RunStatus
	if err := c.awaitAutoStart(ctx); err != nil {
		return err
	}
	f := &follower{}
	var leave func()
	var before int64
	err := c.call(ctx, func() {
		if rec = c.runs.latest(c.runs.find(req.GetRun())); rec == nil {
			return
		}
		f.run = rec.status.GetId()
		f.merge = logstore.NewMerger(req, c.leadTask())
		before = c.store.Written(f.run) - rec.shown.lines
		c.missed(rec, f)
		leave = c.follow(f)
		st = c.status(rec)
	})
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if rec == nil {
		return c.noRun(ctx, req.GetRun())
	}
	defer leave()
	defer c.post(func() {
		rec.shown.lines = c.store.Written(f.run)
		f.mu.Lock()
		defer f.mu.Unlock()
		rec.shown.notesShown = max(rec.shown.notesShown, f.told)
	})
	out, err := c.catchUp(req, f, before)
	if err != nil {
		return err
	}
	if out != nil { // the status first: a cell shows the run above its lines
		if err := stream.Send(&clusterpb.RunUpdate{Status: st, Lines: out}); err != nil {
			return err
		}
	}
	return c.followRun(ctx, rec, f, stream)
}

// missed passes a new follower the notes of its run that no cell has shown. Loop only.
func (c *Coordinator) missed(rec *record, f *follower) {
	end := c.notes.total()
	if !rec.over.IsZero() {
		end = rec.shown.notesAtEnd
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = c.notes.between(rec.shown.notesShown, end)
	f.told = end - len(f.notes)
}

// catchUp returns earlier lines: for a client that follows from the start, the first and last of
// them; otherwise the last ones that the client missed, and their number; nil if there are none.
func (c *Coordinator) catchUp(req *clusterpb.FollowRequest, f *follower, before int64) (*clusterpb.Lines, error) {
	var out *clusterpb.Lines
	var err error
	switch {
	case req.GetFromStart():
		out, err = f.merge.FromStart(c.store, f.run, f.since)
	case before > 0:
		out, err = f.merge.Missed(c.store, f.run, f.since, before, missedTail)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if out.GetBefore() == 0 && len(out.GetHead()) == 0 && len(out.GetTail()) == 0 {
		return nil, nil
	}
	return out, nil
}

// missedTail is how many of the missed lines are shown.
const missedTail = 20

func (c *Coordinator) followRun(ctx context.Context, rec *record, f *follower,
	stream grpc.ServerStreamingServer[clusterpb.RunUpdate],
) error {
	changed, unwatch := c.subs.watch()
	defer unwatch()
	tick := time.NewTicker(followTick)
	defer tick.Stop()
	dirty, over := true, false
	var lastStatus time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return status.Error(codes.Unavailable, ErrOver.Error())
		case <-changed:
			dirty = true
			if err := c.call(ctx, func() { over = !rec.over.IsZero() }); err != nil {
				return status.Error(codes.Unavailable, err.Error())
			}
			if !over {
				continue
			}
		case <-tick.C:
			// durations change all the time
			dirty = dirty || time.Since(lastStatus) > time.Second
		}
		u := &clusterpb.RunUpdate{}
		if dirty {
			if err := c.call(ctx, func() { u.Status = c.status(rec); over = !rec.over.IsZero() }); err != nil {
				return status.Error(codes.Unavailable, err.Error())
			}
			dirty, lastStatus = false, time.Now()
		}
		if over {
			c.awaitSteps(ctx, u.GetStatus())
			if err := c.call(ctx, func() { u.Status = c.statusWithValues(rec) }); err != nil {
				return status.Error(codes.Unavailable, err.Error())
			}
			if rec.loaded {
				c.readValues(u.GetStatus())
			}
			_ = c.awaitLines(ctx, u.GetStatus(), nil) // without a function it returns no error
			if u.GetStatus().GetState() == cluster.RunFinished {
				c.deliver(ctx, u.GetStatus().GetId())
			}
			u.Final = true
		}
		u.Lines, u.Notes = f.take(over)
		if u.Lines == nil && u.Notes == nil && u.Status == nil {
			continue
		}
		if err := stream.Send(u); err != nil || over {
			return err
		}
	}
}

// leadTask returns the task whose progress bars are shown: the chief, or worker 0. Loop only.
func (c *Coordinator) leadTask() string {
	if c.lc.HasRole(cluster.Chief) {
		return cluster.TaskID{Role: cluster.Chief}.String()
	}
	return cluster.TaskID{Role: cluster.Worker}.String()
}

// noRun returns why there is no such run.
func (c *Coordinator) noRun(ctx context.Context, run int32) error {
	_, err := ask(ctx, &c.eventLoop, func() (any, error) {
		failure := c.reserved.answer.GetFailure()
		switch {
		case failure != nil && run == 0:
			return nil, clusterpb.Failed(failure)
		case c.runs.lastRun == 0:
			return nil, status.Error(codes.NotFound, "nothing has been started yet: %tfcluster start PROGRAM")
		case c.runs.current() == nil && run == 0:
			return nil, status.Error(codes.NotFound, "nothing has been started in this cluster yet: %tfcluster start PROGRAM; "+
				"history --all lists the runs that earlier ones left in its directory")
		}
		return nil, status.Errorf(codes.NotFound, "there is no run %d; the last one is run %d", run, c.runs.lastRun)
	})
	return err
}

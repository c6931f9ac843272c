package coordinator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/logstore"
)

// follower is a client that watches a run, or the store's new lines.
type follower struct {
	run   int32
	since logstore.Position // what was kept before it came is read from the store
	mu    sync.Mutex
	// guarded by mu
	merge *logstore.Merger  // for a cell
	raw   []*clusterpb.Line // for logs -f
	query *logstore.Query   // of raw
	bars  logstore.Bars     // of raw
	notes []*clusterpb.Note
	told  int   // what take gave out, counted as record.told
	lost  int64 // lines that did not fit into raw
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
		case !f.query.Match(l) || !f.bars.Passes(l):
		case len(f.raw) < followBuffer:
			f.raw = append(f.raw, l)
		default:
			f.lost++
		}
	}
}

// followBuffer bounds what a slow reader of logs -f makes the driver hold.
const followBuffer = 100_000

func (f *follower) note(n *clusterpb.Note) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.notes) < notesKept { // more has nobody who does not read them
		f.notes = append(f.notes, n)
	}
}

// takeRaw gives the lines of logs -f, and in words what did not fit.
func (f *follower) takeRaw() (lines []*clusterpb.Line, gap string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost > 0 {
		gap = fmt.Sprintf("%d lines came faster than they were read; logs without -f shows them", f.lost)
	}
	lines, f.raw, f.lost = f.bars.Last(f.raw), nil, 0
	return lines, gap
}

func (f *follower) take(end bool) (*clusterpb.Lines, []*clusterpb.Note) {
	f.mu.Lock()
	defer f.mu.Unlock()
	notes := f.notes
	f.notes = nil
	f.told += len(notes)
	return f.merge.Take(end), notes
}

// follow gives a follower the lines that are kept from now on. Those kept before are
// read from the store, up to its position.
func (c *Coordinator) follow(f *follower) (leave func()) {
	since, leaveStore := c.store.Subscribe(f.run, f.lines)
	f.since = since
	leaveNotes := c.subs.follow(f)
	return func() {
		leaveStore()
		leaveNotes()
	}
}

// followTick is how often a cell gets what has come.
const followTick = 100 * time.Millisecond

// Follow implements the Control service.
func (c *control) Follow(req *clusterpb.FollowRequest, stream grpc.ServerStreamingServer[clusterpb.RunUpdate]) error {
	ctx := stream.Context()
	var rec *record
	var st *clusterpb.RunStatus
	if err := c.awaitOwn(ctx); err != nil {
		return status.Error(codes.Unavailable, err.Error())
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
		before = c.store.Written(f.run) - rec.shown.seen
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
		rec.shown.seen = c.store.Written(f.run)
		f.mu.Lock()
		defer f.mu.Unlock()
		rec.shown.told = max(rec.shown.told, f.told)
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

// missed gives a new follower what was noted during its run while no cell was there to show
// it. Loop only.
func (c *Coordinator) missed(rec *record, f *follower) {
	end := c.notes.said()
	if !rec.over.IsZero() {
		end = rec.shown.said
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = c.notes.between(rec.shown.told, end)
	f.told = end - len(f.notes)
}

// catchUp returns what was written before the client came: for a client that follows from the
// start, the first and the last lines; else the number of lines that the client missed,
// and the last of them. It is nil if there is nothing.
func (c *Coordinator) catchUp(req *clusterpb.FollowRequest, f *follower, before int64) (*clusterpb.Lines, error) {
	var out *clusterpb.Lines
	var err error
	switch {
	case req.GetFromStart():
		out, err = f.merge.FromStart(c.store, f.run, f.since)
	case before > 0:
		out, err = f.merge.Missed(c.store, f.run, f.since, before, lookedAway)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if out.GetBefore() == 0 && len(out.GetHead()) == 0 && len(out.GetTail()) == 0 {
		return nil, nil
	}
	return out, nil
}

// lookedAway is how many of the lines that a client missed are shown.
const lookedAway = 20

func (c *Coordinator) followRun(ctx context.Context, rec *record, f *follower, stream grpc.ServerStreamingServer[clusterpb.RunUpdate]) error {
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
			// Durations move although nothing happens.
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
			_ = c.awaitLines(ctx, u.GetStatus(), nil) // no error without a function of ours
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

// leadTask is whose progress bars are shown: the chief's, or worker 0's. Loop only.
func (c *Coordinator) leadTask() string {
	if c.lc.HasRole(cluster.Chief) {
		return cluster.TaskID{Role: cluster.Chief}.String()
	}
	return cluster.TaskID{Role: cluster.Worker}.String()
}

func (c *Coordinator) noRun(ctx context.Context, run int32) error {
	var have int32
	var begun bool
	if err := c.call(ctx, func() { have, begun = c.runs.lastRun, c.runs.current() != nil }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	switch {
	case have == 0:
		return status.Error(codes.NotFound, "nothing has been started yet: %tfcluster start PROGRAM")
	case !begun && run == 0:
		return status.Error(codes.NotFound, "nothing has been started in this cluster yet: %tfcluster start PROGRAM; history --all lists the runs that earlier ones left in its directory")
	}
	return status.Errorf(codes.NotFound, "there is no run %d; the last one is run %d", run, have)
}

// lastStatus settles a record's status at its end. Loop only.
func (c *Coordinator) lastStatus(rec *record) {
	rec.fill(c.lc.Run(), c.store.Lines(rec.status.GetId()))
}

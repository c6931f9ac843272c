package coordinator

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// Logs implements the Control service: it sends stored lines, then new ones.
func (c *control) Logs(req *clusterpb.LogsRequest, stream grpc.ServerStreamingServer[clusterpb.LinesReply]) error {
	ctx := stream.Context()
	if req.GetEngine() {
		return c.sendContainerLogs(ctx, req, stream)
	}
	q, err := logstore.ParseQuery(req)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if req.GetFollow() {
		if err := c.awaitAutoStart(ctx); err != nil {
			return err
		}
	}
	var rec *record
	live := q
	f := &follower{query: &live}
	leave := func() {}
	err = c.call(ctx, func() {
		if rec = c.runs.find(req.GetRun()); rec == nil {
			return
		}
		q.Run = rec.status.GetId()
		f.run = q.Run
		if req.GetFollow() {
			if req.GetAfterRun() == q.Run {
				q.From = req.GetAfter()
				live.From = q.From
			}
			f.bars = logstore.NewBars(req.GetTask(), c.leadTask())
			leave = c.follow(f)
			q.Until = f.since
		}
	})
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if rec == nil && req.GetRun() == 0 {
		if sent, err := c.engineLogs(ctx, req, stream); err != nil || sent > 0 && !req.GetFollow() {
			return err
		}
	}
	if rec == nil {
		return c.noRun(ctx, req.GetRun())
	}
	defer leave()
	if rec.loaded && c.cfg.Spool != nil { // its lines may not be on this host
		err := c.files.fetchFolder(ctx, q.Run, rundir.Lines)
		if err == nil {
			err = c.store.Load(q.Run)
		}
		if err != nil {
			return status.Errorf(codes.Internal, "the lines of run %d cannot be read: %v", q.Run, err)
		}
	}
	lines, gaps, err := c.store.Read(q)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if err := stream.Send(&clusterpb.LinesReply{Run: q.Run}); err != nil {
		return err
	}
	if err := sendLines(stream, lines, gaps); err != nil || !req.GetFollow() {
		return err
	}
	if err := stream.Send(&clusterpb.LinesReply{Run: q.Run, KeptSent: true, Position: f.since}); err != nil {
		return err
	}
	return c.followLogs(ctx, rec, f, stream)
}

// Maximum size of a message of lines.
const (
	linesAtOnce = 5000
	bytesAtOnce = 1 << 20
)

// atOnce returns how many lines fit into one message, at least one.
func atOnce(lines []*clusterpb.Line) int {
	bytes := 0
	for i, l := range lines[:min(len(lines), linesAtOnce)] {
		if bytes += len(l.GetText()); bytes > bytesAtOnce {
			return max(i, 1)
		}
	}
	return min(len(lines), linesAtOnce)
}

// sendLines sends lines, with each gap at its position.
func sendLines(stream grpc.ServerStreamingServer[clusterpb.LinesReply], lines []*clusterpb.Line,
	gaps []logstore.Gap,
) error {
	for at := 0; at < len(lines) || len(gaps) > 0; {
		var texts []string
		for len(gaps) > 0 && gaps[0].Before <= at {
			texts = append(texts, gaps[0].String())
			gaps = gaps[1:]
		}
		end := at + atOnce(lines[at:])
		if len(gaps) > 0 {
			end = min(end, gaps[0].Before)
		}
		if err := stream.Send(&clusterpb.LinesReply{Lines: lines[at:end], Gap: strings.Join(texts, "; ")}); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// followLogs sends new lines until the run has ended and its last line was sent.
func (c *control) followLogs(ctx context.Context, rec *record, f *follower,
	stream grpc.ServerStreamingServer[clusterpb.LinesReply],
) error {
	tick := time.NewTicker(followTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return nil
		case <-tick.C:
		}
		var over bool
		var st *clusterpb.RunStatus
		if err := c.call(ctx, func() { over = !rec.over.IsZero(); st = c.status(rec) }); err != nil {
			return nil
		}
		if over {
			// f may not hold all last lines: they are sent while more arrive.
			if err := c.awaitLines(ctx, st, func() error { return c.sendRaw(f, stream) }); err != nil {
				return err
			}
		}
		if err := c.sendRaw(f, stream); err != nil {
			return err
		}
		if over {
			return stream.Send(&clusterpb.LinesReply{Over: true})
		}
	}
}

// sendRaw sends the lines since the last call. Those that came faster than the client read are read from the
// store, so that none is lost.
func (c *control) sendRaw(f *follower, stream grpc.ServerStreamingServer[clusterpb.LinesReply]) error {
	lines, from, until := f.takeRaw()
	if err := sendLines(stream, lines, nil); err != nil {
		return err
	}
	for len(until) > 0 {
		q := *f.query
		q.Last, q.From, q.Until = 0, from, logstore.Position{}
		next := logstore.Position{}
		for task, end := range until {
			if q.Until[task] = min(end, from[task]+readAtOnce); q.Until[task] < end {
				next[task] = q.Until[task]
			} else {
				delete(until, task)
			}
		}
		from = next
		kept, gaps, err := c.store.Read(q)
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		if err := sendLines(stream, kept, gaps); err != nil {
			return err
		}
	}
	return nil
}

// readAtOnce is the number of a task's lines that are read from the store at once for a client that has fallen
// behind.
const readAtOnce = 20_000

// LinesAddress implements the Control service.
func (c *control) LinesAddress(ctx context.Context,
	_ *clusterpb.LinesAddressRequest,
) (*clusterpb.LinesAddressReply, error) {
	if c.cfg.TensorBoard == nil {
		return nil, status.Error(codes.Unimplemented, "this driver serves no lines by HTTP")
	}
	reply, err := c.cfg.TensorBoard.LinesAddress(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return reply, nil
}

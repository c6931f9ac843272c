package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/feed"
)

// look is the interval between two checks of a client's feed.
const look = 200 * time.Millisecond

// Feed implements the FeedControl service.
func (d *Dispatch) Feed(stream grpc.BidiStreamingServer[clusterpb.FeedCommand, clusterpb.FeedUpdate]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	request := first.GetRequest()
	if request == nil {
		return status.Error(codes.InvalidArgument, "a feed begins with a request")
	}
	s, failure, err := d.begin(stream, request)
	if err != nil {
		return err
	}
	if s == nil { // without a failure, the run itself reports why it has ended
		return stream.Send(&clusterpb.FeedUpdate{Over: true, Failure: failure})
	}
	defer d.forget(s)
	d.addRoute(s)
	if err := stream.Send(&clusterpb.FeedUpdate{Open: s.open()}); err != nil {
		return err
	}
	commands := make(chan *clusterpb.FeedCommand)
	go func() { // ends with the stream, which ends when this handler returns
		defer close(commands)
		for {
			c, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case commands <- c:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	return d.follow(stream, s, commands)
}

// begin waits for the tasks of the active run and begins the feed. It returns a failure for the client, or an error
// of the stream. It returns none of these if a feed was to begin again and its run has ended.
func (d *Dispatch) begin(stream grpc.BidiStreamingServer[clusterpb.FeedCommand, clusterpb.FeedUpdate],
	request *clusterpb.FeedRequest,
) (*session, *clusterpb.Failure, error) {
	ctx := stream.Context()
	// The deadline is counted from the moment when every task is in its program: the lifecycle limits the time
	// before.
	var deadline time.Time
	said := ""
	for {
		run, err := d.runs.FeedableRun(ctx)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case run.Over != "" && request.GetAgain():
			return nil, nil, nil
		case run.Over != "":
			return nil, noReader(run.Over), nil
		}
		if run.Entering || deadline.IsZero() {
			deadline = time.Now().Add(d.patience.ask)
		}
		s, missing, failure := d.tryBegin(request, run, time.Now().After(deadline))
		if s != nil || failure != nil {
			return s, failure, nil
		}
		if waiting := waitingFor(run, missing); waiting != said {
			said = waiting
			if err := stream.Send(&clusterpb.FeedUpdate{Waiting: waiting}); err != nil {
				return nil, nil, err
			}
		}
		if err := d.pause(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// waitingFor returns the text of what a feed waits for before it begins.
func waitingFor(run Run, missing []string) string {
	if run.ID == 0 {
		return "waiting for the run to start"
	}
	return fmt.Sprintf("waiting for %s to call ctx.get_data_feed()", strings.Join(missing, ", "))
}

// noReader returns the failure of a feed that no program reads.
func noReader(why string) *clusterpb.Failure {
	return &clusterpb.Failure{
		Kind: "usage", Summary: "no run takes data: " + why, ExitCode: 2,
		Remedy: "%tfcluster start a program that calls ctx.get_data_feed()",
	}
}

// tryBegin begins the feed if every task waits for it; if late, with the tasks that do. Otherwise it returns the
// missing tasks, or a failure.
func (d *Dispatch) tryBegin(request *clusterpb.FeedRequest,
	run Run, late bool,
) (s *session, missing []string, failure *clusterpb.Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	holders, missing := d.holdersOf(run)
	for _, h := range holders {
		if failure := refused(h, request, run.ID); failure != nil {
			return nil, nil, failure
		}
	}
	switch {
	case d.on != nil:
		return nil, nil, &clusterpb.Failure{
			Kind: "usage", Summary: fmt.Sprintf("run %d is being fed already", run.ID), ExitCode: 2,
			Remedy: "%tfcluster wait waits for its end, %tfcluster stop ends the run",
		}
	case run.ID == 0:
	case len(holders) > 0 && (late || len(missing) == 0):
		return d.newSession(request, run, holders), nil, nil
	case len(missing) == 0:
		return nil, nil, noReader(fmt.Sprintf(
			"no task of run %d reads it: chief and workers have ended, or are in tf.distribute.Server.join()", run.ID))
	case late:
		return nil, nil, noReader(fmt.Sprintf("none of the tasks of run %d has called ctx.get_data_feed() within %s", run.ID,
			d.patience.ask))
	}
	return nil, missing, nil
}

// refused returns why a task takes no further feed, or not this one; nil if it takes it. A program asks for its mode
// once, so a run has one mode.
func refused(h *holder, request *clusterpb.FeedRequest, run int32) *clusterpb.Failure {
	f := &clusterpb.Failure{Kind: "usage", ExitCode: 2}
	switch {
	case h.over:
		f.Summary = fmt.Sprintf("the feed of run %d is over", run)
		f.Remedy = "train --more keeps a feed open for the next train; else start the program again"
	case h.mode != "" && h.mode != request.GetMode():
		f.Summary = fmt.Sprintf("run %d was begun by %s: a run has one mode, and takes no %s", run, h.mode, request.GetMode())
		f.Remedy = fmt.Sprintf("%%tfcluster %s again, or stop, start the program again and %s", h.mode, request.GetMode())
	default:
		return nil
	}
	return f
}

// pause waits for a change, for look at most.
func (d *Dispatch) pause(ctx context.Context) error {
	d.mu.Lock()
	changed := d.changed
	d.mu.Unlock()
	select {
	case <-changed:
	case <-time.After(look):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// follow handles the client's commands and sends it the feed's progress, until the feed is over.
func (d *Dispatch) follow(stream grpc.BidiStreamingServer[clusterpb.FeedCommand, clusterpb.FeedUpdate], s *session,
	commands <-chan *clusterpb.FeedCommand,
) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	stopped := false
	var ended, hurt time.Time // when the end of the run was seen, and when damage to the session
	for {
		select {
		case c, more := <-commands:
			d.command(s, c, more)
			if !more {
				commands = nil
			}
		case <-tick.C:
		case <-stream.Context().Done():
			d.fail(s, "the client that read the source has ended")
			return stream.Context().Err()
		}
		run, err := d.runs.FeedableRun(stream.Context())
		if err != nil {
			return err
		}
		over := run.ID != s.run.ID || run.Over != ""
		if !over && d.restarted(s, run) {
			return d.again(stream, s, run)
		}
		if over && ended.IsZero() {
			ended = time.Now()
		}
		over = over && (d.allLeft(s) || time.Since(ended) >= d.patience.last)
		if over {
			d.fail(s, s.runEnded())
		}
		update := d.update(s, over)
		suspect := d.suspect(s)
		if suspect > 0 && hurt.IsZero() {
			hurt = time.Now()
		}
		if !over && (!ended.IsZero() || !hurt.IsZero() && time.Since(hurt) < suspect) {
			// The run ends, or its tasks are restarted. Either is a better reason than this one.
			update.Over, update.Failure = false, nil
		}
		update.Stop = update.GetStop() && (!stopped || update.GetOver())
		stopped = stopped || update.GetStop()
		if update.GetOver() {
			d.forget(s) // before the client is informed: it may begin another feed at once
		}
		switch err := stream.Send(update); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil, update.GetOver():
			return err
		}
	}
}

// command applies a client's command. The end of the client's stream fails the feed.
func (d *Dispatch) command(s *session, c *clusterpb.FeedCommand, more bool) {
	if !more {
		d.fail(s, "the client that read the source has ended")
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c.GetEpochFed() != nil:
		s.send(s.feed.EpochFed(c.GetEpochFed()))
	case c.GetFailed() != nil:
		s.sourceFailed(c.GetFailed().GetReason())
	}
}

// fail ends a feed with a reason.
func (d *Dispatch) fail(s *session, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.send(s.feed.Fail(reason))
}

// update returns the state of the feed for the client. runOver reports whether the run has ended.
func (d *Dispatch) update(s *session, runOver bool) *clusterpb.FeedUpdate {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := s.feed.Progress()
	u := &clusterpb.FeedUpdate{Progress: s.progress(time.Now()), Stop: s.feed.Stopped()}
	u.Over = runOver || p.Over && (p.Fault != "" || s.served(p))
	// The run itself reports why it has ended.
	if p.Fault != "" && p.Fault != s.runEnded() && !(runOver && s.lost) {
		u.Failure = &clusterpb.Failure{
			Kind: "task", Summary: "the feed failed: " +
				p.Fault, Remedy: "the run fails with its feed: start it again, then run this cell again",
		}
		if s.source {
			u.Failure.Kind = "source" // the client knows more
		}
	}
	return u
}

// served reports whether a feed with an ended source needs its client no more. Unless another feed follows, the feed
// needs its client until the end of the run: its tasks may be restarted.
func (s *session) served(p feed.Progress) bool {
	return s.request.GetMore() && p.Remaining == 0
}

// runEnded returns the fault of a feed with a run that has ended.
func (s *session) runEnded() string { return fmt.Sprintf("run %d has ended", s.run.ID) }

// allLeft reports whether all programs have left the feed. Then the numbers of their holders are the last ones.
func (d *Dispatch) allLeft(s *session) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.allLeft()
}

func (s *session) allLeft() bool {
	for task := range s.holders {
		if !s.left[task] {
			return false
		}
	}
	return true
}

// suspect returns for how long an event of the feed may be the first sign of the end of its run, or of a restart; 0
// if there was no such event.
func (d *Dispatch) suspect(s *session) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case s.hurt:
		return d.patience.cause
	case s.request.GetMore() && s.allLeft():
		return d.patience.last
	}
	return 0
}

// forget makes room for another feed. A feed that is not over fails, because its source is read no more.
func (d *Dispatch) forget(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.send(s.feed.Fail("the client that read the source has ended"))
	if d.on == s {
		d.on = nil
	}
	d.wake()
}

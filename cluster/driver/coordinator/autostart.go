package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// followersWait bounds how long a cluster waits, after its own run has ended, for clients to
// read that. They find it in the run's record too.
const followersWait = 10 * time.Second

// autoStart starts the run for which the cluster was made once all executors are ready, and
// releases the cluster after its end. An earlier driver may have started it. It also restarts a
// client's run that an earlier driver's death interrupted; the cluster is not released after
// that.
func (c *Coordinator) autoStart(ctx context.Context, req *clusterpb.StartRequest) {
	changed, leave := c.subs.watch()
	defer leave()
	for {
		var ready, over bool
		var rec *record
		var st *clusterpb.RunStatus
		err := c.call(ctx, func() {
			ready = c.lc.State() == lifecycle.Ready
			if before := c.runs.current(); before != nil {
				st = c.status(before)
			}
			if rec = c.runs.autoStarted(); rec != nil {
				over = !rec.over.IsZero()
			}
		})
		switch {
		case err != nil:
			return
		case rec != nil && c.cfg.Begin == nil:
			return
		case over:
			c.releaseAfterRun(ctx, st)
			return
		case rec == nil && ready:
			if !c.startAutomatically(ctx, req, st.GetId()) {
				return
			}
		}
		if c.awaitChange(ctx, changed) != nil {
			return
		}
	}
}

// autoStartPending returns whether autoStart is about to start a run: the runs in the directory
// are other clusters', or will be continued. Loop only.
func (c *Coordinator) autoStartPending() bool {
	return c.runs.autoStart != nil && c.lc.State() <= lifecycle.Ready && c.runs.autoStarted() == nil
}

// startAutomatically starts the run unless a client has started one. It returns false if that
// fails, and then ends a cluster that was made for that run. before is the interrupted run,
// from whose checkpoints the new one resumes if there are any; 0: none.
func (c *Coordinator) startAutomatically(ctx context.Context, req *clusterpb.StartRequest, before int32) bool {
	var fresh error // why it does not resume
	var err error
	if before > 0 {
		if req, err = c.continuation(ctx, req, before); err != nil {
			return false
		}
		c.sayAwaited(ctx, before)
		resumed := proto.CloneOf(req)
		resumed.Options.Resume = strconv.Itoa(int(before))
		if err = c.startResumed(ctx, resumed, before); status.Code(err) == codes.InvalidArgument {
			fresh = err
		}
	}
	if (before == 0 || fresh != nil) && ctx.Err() == nil {
		_, err = c.startRunAs(ctx, req, before)
	}
	others := false
	told := c.call(ctx, func() {
		// A client may have started a run at the moment the cluster became ready.
		if others = err != nil && (c.runs.autoStarted() != nil || c.runs.planning); others {
			return
		}
		switch {
		case err != nil && c.cfg.Begin == nil:
			c.cannotContinue(before, status.Convert(err).Message())
			return
		case err != nil:
			c.runs.startError = status.Convert(err).Message()
			c.log.Error("the run cannot begin; the cluster is shut down", "err", err)
			c.handle(lifecycle.ShutdownRequested{Reason: c.runs.startError})
			return
		case fresh != nil:
			why, _, _ := strings.Cut(strings.TrimPrefix(status.Convert(fresh).Message(), fmt.Sprintf("--resume=%d: ", before)),
				"; ")
			c.note(fmt.Sprintf("run %d begins from the start: %s", c.runs.lastRun, why), true)
		case before > 0:
			c.note(fmt.Sprintf("run %d was interrupted by the driver's death; run %d continues from its last checkpoint", before,
				c.runs.lastRun), true)
		}
		c.clients.detached = c.cfg.Begin != nil || c.cfg.Recovered.Detached // it goes on without clients
		c.saveState()
	})
	return (err == nil || others) && told == nil
}

// sayAwaited says whose last files the start that continues an interrupted run waits for.
func (c *Coordinator) sayAwaited(ctx context.Context, before int32) {
	_ = c.call(ctx, func() { // else the cluster is over
		if !c.filesPending(before) {
			return
		}
		var tasks []string
		for id, o := range c.execs.pendingFiles {
			if o.run == before {
				tasks = append(tasks, c.lc.Executor(id).Task.String())
			}
		}
		slices.Sort(tasks)
		c.note(fmt.Sprintf("run %d was interrupted by the driver's death: waiting for the last files of %s, up to %v",
			before, strings.Join(tasks, ", "), filesLimit), true)
		c.subs.wake()
	})
}

// cannotContinue ends the attempts to continue the interrupted run before, which keeps its checkpoints. Loop only.
func (c *Coordinator) cannotContinue(before int32, why string) {
	c.runs.autoStart = nil // awaitAutoStart returns
	next := fmt.Sprintf("%%tfcluster start --resume=%d continues from its last checkpoint", before)
	if step := errtext.RemedyForLimit(why, " on the driver's host"); step != "" {
		next = step + "; then " + next
	}
	c.note(fmt.Sprintf("run %d was interrupted by the driver's death and could not be restarted: %s; %s", before, why,
		next), true)
	if rec := c.runs.find(before); rec != nil && results.Interrupted(rec.status) { // for the cells that wait for it
		f := rec.status.GetFailure()
		f.Summary = "the cluster's driver died during the run, and it could not be continued: " + why
		f.Remedy = next
	}
}

// An interrupted run resumes from its checkpoints. A full disk or a file system that does not
// answer is no reason to start the training from the beginning: the start is retried for
// resumeLimit.
const (
	resumeLimit = 3 * time.Minute
	resumePause = 5 * time.Second // the longest pause between two attempts
)

// startResumed starts the run that resumes from the checkpoints of the interrupted run before. It
// fails with InvalidArgument if there is no checkpoint.
func (c *Coordinator) startResumed(ctx context.Context, req *clusterpb.StartRequest, before int32) error {
	pause := resumePause / 20
	for end := time.Now().Add(resumeLimit); ; pause = min(2*pause, resumePause) {
		_, err := c.startRunAs(ctx, req, before)
		if err == nil || status.Code(err) == codes.InvalidArgument {
			return err
		}
		again := false
		if gone := c.call(ctx, func() {
			// Otherwise a client has started a run meanwhile, or the cluster is being released.
			if again = c.lc.State() == lifecycle.Ready && !c.lc.Busy() && !c.runs.planning; again {
				c.noteOnce(fmt.Sprintf("run %d was interrupted by the driver's death and cannot be continued yet: %s; "+
					"this is tried again for %v", before, status.Convert(err).Message(), resumeLimit))
				c.subs.wake()
			}
		}); gone != nil || !again {
			return err
		}
		if time.Now().After(end) || c.sleep(ctx, pause) != nil {
			return err
		}
	}
}

// continuation returns the start of the run that continues an interrupted one, with the
// restarts that are left: the driver's death counts as one.
func (c *Coordinator) continuation(ctx context.Context, req *clusterpb.StartRequest,
	before int32,
) (*clusterpb.StartRequest, error) {
	further := proto.CloneOf(req)
	return further, c.call(ctx, func() {
		if rec := c.runs.find(before); rec != nil {
			further.Options.MaxRestarts = max(0, c.runs.restartsLeft(rec)-1)
			further.Options.MaxLosses = max(0, further.GetOptions().GetMaxLosses()-rec.status.GetLosses())
		}
	})
}

// releaseAfterRun releases the cluster once the run's files and lines have arrived, and its
// followers have read its end.
func (c *Coordinator) releaseAfterRun(ctx context.Context, st *clusterpb.RunStatus) {
	c.awaitFiles(ctx, st.GetId())
	_ = c.awaitLines(ctx, st, nil) // without a function it returns no error
	changed, leave := c.subs.watch()
	defer leave()
	limited, cancel := context.WithTimeout(ctx, followersWait)
	defer cancel()
	for c.subs.hasFollowers() && c.awaitChange(limited, changed) == nil {
	}
	c.post(func() { c.handle(lifecycle.ShutdownRequested{Reason: "its run is over"}) })
}

// awaitAutoStart waits until autoStart has started its run, if it is to start one.
func (c *Coordinator) awaitAutoStart(ctx context.Context) error {
	return c.until(ctx, func() bool {
		return c.runs.autoStart == nil || c.runs.autoStarted() != nil || c.lc.State() == lifecycle.Failed
	}, nil)
}

// awaitTakeover has a start wait until the executors of an earlier driver have joined again or
// were replaced, and reports which are missing.
func (c *Coordinator) awaitTakeover(ctx context.Context, req *clusterpb.StartRequest,
	show func(*clusterpb.StartUpdate) error,
) error {
	if c.cfg.Recovered.Saved == nil {
		return nil
	}
	began := time.Now()
	var run *clusterpb.RunStatus
	return c.until(ctx, func() bool {
		run = &clusterpb.RunStatus{
			Id: c.runs.lastRun + 1, State: lifecycle.RunWaiting.String(), Program: req.GetProgram().GetName(),
			Waiting: c.lc.Missing(), Seconds: time.Since(began).Seconds(),
		}
		return c.lc.State() != lifecycle.Reserving
	}, func() error { return show(&clusterpb.StartUpdate{Run: run}) })
}

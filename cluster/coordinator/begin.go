package coordinator

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// followedMost is how long clients may take to hear of a run's end before the cluster
// that was made for it is gone. What it left tells them too.
const followedMost = 10 * time.Second

// runItself begins the run that the cluster was made for once all is reserved, and gives
// the cluster back when it is over. An earlier driver of the cluster may have begun it. A run that
// was cut off and that a client began goes on as another; the cluster is not given back behind it.
func (c *Coordinator) runItself(ctx context.Context, req *clusterpb.StartRequest) {
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
			if rec = c.runs.begun(); rec != nil {
				over = !rec.over.IsZero()
			}
		})
		switch {
		case err != nil:
			return
		case rec != nil && c.cfg.Begin == nil:
			return
		case over:
			c.giveBack(ctx, st)
			return
		case rec == nil && ready:
			if !c.beginItself(ctx, req, st.GetId()) {
				return
			}
		}
		if c.pause(ctx, changed) != nil {
			return
		}
	}
}

// yetToBegin is whether the cluster is to begin its run by itself, and is about to: what
// its directory holds are others' runs, or one that goes on as another. Loop only.
func (c *Coordinator) yetToBegin() bool {
	return c.runs.autoStart != nil && c.lc.State() <= lifecycle.Ready && c.runs.begun() == nil
}

// beginItself begins the run, unless a client was first. It returns false where that cannot be,
// and ends a cluster that was made for that run. before is the one that an earlier driver's death
// cut off, whose checkpoints it takes up if there are any.
func (c *Coordinator) beginItself(ctx context.Context, req *clusterpb.StartRequest, before int32) bool {
	var fresh error // why it does not go on from a checkpoint
	var err error
	if before > 0 {
		if req, err = c.further(ctx, req, before); err != nil {
			return false
		}
		resumed := proto.CloneOf(req)
		resumed.Options.Resume = strconv.Itoa(int(before))
		if err = c.beginResumed(ctx, resumed, before); status.Code(err) == codes.InvalidArgument {
			fresh = err
		}
	}
	if (before == 0 || fresh != nil) && ctx.Err() == nil {
		_, err = c.beginAs(ctx, req, before)
	}
	others := false
	told := c.call(ctx, func() {
		// A client's start may come in the moment of ready: what it begins is the run then.
		if others = err != nil && (c.runs.begun() != nil || c.runs.planning); others {
			return
		}
		switch {
		case err != nil && c.cfg.Begin == nil:
			c.runs.autoStart = nil // nobody awaits it any more
			c.note(fmt.Sprintf("run %d was cut off by the driver's death and could not be begun again: %s", before, status.Convert(err).Message()), true)
			return
		case err != nil:
			c.runs.unbegun = status.Convert(err).Message()
			c.log.Error("begin the run", "err", err)
			c.handle(lifecycle.ShutdownRequested{Reason: c.runs.unbegun})
			return
		case fresh != nil:
			why, _, _ := strings.Cut(strings.TrimPrefix(status.Convert(fresh).Message(), fmt.Sprintf("--resume=%d: ", before)), "; ")
			c.note(fmt.Sprintf("run %d begins from the start: %s", c.runs.lastRun, why), true)
		case before > 0:
			c.note(fmt.Sprintf("run %d was cut off by the driver's death; run %d goes on from its last checkpoint", before, c.runs.lastRun), true)
		}
		c.clients.detached = c.cfg.Begin != nil || c.cfg.Recovered.Detached // no client's end is its end
		c.saveState()
	})
	return (err == nil || others) && told == nil
}

// A run that was cut off goes on from its checkpoints. A full disk or a file system that does not answer is
// no reason to begin from the start: taking them up is tried again for resumeMost.
const (
	resumeMost  = 3 * time.Minute
	resumePause = 5 * time.Second // at the longest
)

// beginResumed begins the run that goes on from the checkpoints of the run before. It fails with
// InvalidArgument if there is no checkpoint.
func (c *Coordinator) beginResumed(ctx context.Context, req *clusterpb.StartRequest, before int32) error {
	pause := resumePause / 20
	for end := time.Now().Add(resumeMost); ; pause = min(2*pause, resumePause) {
		_, err := c.beginAs(ctx, req, before)
		if err == nil || status.Code(err) == codes.InvalidArgument {
			return err
		}
		again := false
		if gone := c.call(ctx, func() {
			// Otherwise a client has begun a run meanwhile, or the cluster is being released.
			if again = c.lc.State() == lifecycle.Ready && !c.lc.Busy() && !c.runs.planning; again {
				c.noteOnce(fmt.Sprintf("run %d was cut off by the driver's death and cannot go on yet: %s; this is tried again for %v", before, status.Convert(err).Message(), resumeMost))
				c.subs.wake()
			}
		}); gone != nil || !again {
			return err
		}
		if time.Now().After(end) {
			return status.Errorf(status.Code(err), "%s; its checkpoints are kept, start --resume=%d takes them up", status.Convert(err).Message(), before)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// further returns the start of the run as which one that was cut off goes on, with the restarts that
// are left: the driver's death was one.
func (c *Coordinator) further(ctx context.Context, req *clusterpb.StartRequest, before int32) (*clusterpb.StartRequest, error) {
	further := proto.CloneOf(req)
	return further, c.call(ctx, func() {
		if rec := c.runs.find(before); rec != nil {
			further.Options.MaxRestarts = max(0, c.runs.restartsLeft(rec)-1)
		}
	})
}

// giveBack releases the cluster once what the run left has come, and whoever follows it
// has heard of its end.
func (c *Coordinator) giveBack(ctx context.Context, st *clusterpb.RunStatus) {
	c.awaitFiles(ctx, st.GetId())
	_ = c.awaitLines(ctx, st, nil) // no error without a function of ours
	changed, leave := c.subs.watch()
	defer leave()
	limited, cancel := context.WithTimeout(ctx, followedMost)
	defer cancel()
	for c.subs.followed() && c.pause(limited, changed) == nil {
	}
	c.post(func() { c.handle(lifecycle.ShutdownRequested{Reason: "its run is over"}) })
}

// awaitOwn waits until the run is there that the cluster was made for, if there is one
// that no client begins: one that was cut off is followed by another.
func (c *Coordinator) awaitOwn(ctx context.Context) error {
	changed, leave := c.subs.watch()
	defer leave()
	for {
		var there bool
		err := c.call(ctx, func() {
			there = c.runs.autoStart == nil || c.runs.begun() != nil || c.lc.State() == lifecycle.Failed
		})
		if err != nil || there {
			return err
		}
		if err := c.pause(ctx, changed); err != nil {
			return err
		}
	}
}

// awaitTakeover lets a start wait until the executors that an earlier driver reserved are back, or
// others in their place, and shows for what it waits.
func (c *Coordinator) awaitTakeover(ctx context.Context, req *clusterpb.StartRequest, show func(*clusterpb.StartUpdate) error) error {
	if c.cfg.Recovered.Saved == nil {
		return nil
	}
	began := time.Now()
	changed, leave := c.subs.watch()
	defer leave()
	for {
		var waits bool
		run := &clusterpb.RunStatus{State: lifecycle.RunWaiting.String(), Program: req.GetProgram().GetName(), Seconds: time.Since(began).Seconds()}
		if err := c.call(ctx, func() {
			waits = c.lc.State() == lifecycle.Reserving
			run.Id, run.Waiting = c.runs.lastRun+1, c.lc.Missing()
		}); err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		if !waits {
			return nil
		}
		if err := show(&clusterpb.StartUpdate{Run: run}); err != nil {
			return err
		}
		if err := c.pause(ctx, changed); err != nil {
			return err
		}
	}
}

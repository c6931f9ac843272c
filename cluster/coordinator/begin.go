package coordinator

import (
	"context"
	"errors"
	"strconv"
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
// the cluster back when it is over. An earlier driver of the cluster may have begun it.
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
	return c.cfg.Begin != nil && c.lc.State() <= lifecycle.Ready && c.runs.begun() == nil
}

// beginItself begins the run, unless a client was first, or ends the cluster where that
// cannot be, and returns false. before is the one that an earlier driver's death cut off,
// whose checkpoints it takes up if there are any.
func (c *Coordinator) beginItself(ctx context.Context, req *clusterpb.StartRequest, before int32) bool {
	err := errors.New("nothing to go on from")
	if before > 0 {
		further := proto.CloneOf(req)
		further.Options.Resume = strconv.Itoa(int(before))
		_, err = c.begin(ctx, further)
	}
	if err != nil && ctx.Err() == nil {
		_, err = c.begin(ctx, req)
	}
	others := false
	told := c.call(ctx, func() {
		// A client's start may come in the moment of ready: what it begins is the run then.
		if others = status.Code(err) == codes.FailedPrecondition && (c.runs.begun() != nil || c.runs.planning); others {
			return
		}
		if err != nil {
			c.runs.unbegun = status.Convert(err).Message()
			c.log.Error("begin the run", "err", err)
			c.handle(lifecycle.ShutdownRequested{Reason: c.runs.unbegun})
			return
		}
		c.clients.detached = true // no client's end is its end
		c.saveState()
	})
	return (err == nil || others) && told == nil
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
	if c.cfg.Begin == nil {
		return nil
	}
	changed, leave := c.subs.watch()
	defer leave()
	for {
		var there bool
		err := c.call(ctx, func() {
			there = c.runs.begun() != nil || c.lc.State() == lifecycle.Failed
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
